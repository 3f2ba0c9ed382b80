#include "slimexx/ops/router.h"

#include <algorithm>
#include <map>

#include "ops/expert_cases.h"
#include "ops/testing.h"

namespace slimexx::ops::testing {
namespace {

SLX_OPS_SUITE(Router);

using Ints = std::vector<int32_t>;

tensor::Tensor view(Ints& values, std::initializer_list<int64_t> shape) {
  return {values.data(), tensor::DType::kI32, {}, shape};
}

struct Routed {
  Ints ids;
  Array weights;
};

Routed route(const Context& ctx, const Array& logits, const Array* bias, const RouterRule& rule) {
  const int64_t tokens = logits.view().dim(0);
  Routed routed{Ints(static_cast<size_t>(tokens * rule.top_k)), Array({tokens, rule.top_k})};
  route_forward(ctx, view(routed.ids, {tokens, rule.top_k}), routed.weights, logits,
                bias != nullptr ? bias->view() : Tensor{}, rule);
  return routed;
}

// The routing rule in double: experts by descending score; of equal ones the lower id first.
struct Reference {
  Ints ids;
  std::vector<double> weights;
};
std::vector<double> scores_of(const double* logits, const RouterRule& rule) {
  std::vector<double> scores;
  double sum = 0;
  for (int64_t e = 0; e < rule.num_experts; ++e) {
    const double exponential = std::exp(logits[e]);
    scores.push_back(rule.score == RouterScore::kSigmoid ? exponential / (1 + exponential)
                                                         : exponential);
    sum += scores.back();
  }
  if (rule.score == RouterScore::kSoftmax)
    for (double& score : scores) score /= sum;
  return scores;
}
std::vector<double> weights_of(const std::vector<double>& scores, const Ints& ids,
                               const RouterRule& rule) {
  double sum = rule.normalized ? double{rule.epsilon} : 1;
  for (const int32_t id : ids)
    if (rule.normalized) sum += scores[static_cast<size_t>(id)];
  std::vector<double> weights;
  for (const int32_t id : ids)
    weights.push_back(scores[static_cast<size_t>(id)] / sum * double{rule.scaling_factor});
  return weights;
}
Reference route_row(const double* logits, const std::vector<double>& bias, const RouterRule& rule) {
  const std::vector<double> scores = scores_of(logits, rule);
  std::vector<double> choice = scores;
  for (size_t e = 0; e < bias.size(); ++e) choice[e] += bias[e];
  const auto size = static_cast<size_t>(rule.num_experts / rule.num_groups);
  std::vector<std::pair<double, int64_t>> groups;  // (negated sum of the group's best two, group)
  for (int64_t g = 0; g < rule.num_groups; ++g) {
    std::vector<double> members(choice.begin() + g * static_cast<int64_t>(size),
                                choice.begin() + (g + 1) * static_cast<int64_t>(size));
    std::ranges::sort(members, std::greater<>());
    groups.emplace_back(-(members[0] + (size > 1 ? members[1] : 0)), g);
  }
  std::ranges::sort(groups);
  std::vector<std::pair<double, int32_t>> experts;
  for (int64_t i = 0; i < rule.kept_groups; ++i)
    for (size_t e = 0; e < size; ++e) {
      const auto id = static_cast<size_t>(groups[static_cast<size_t>(i)].second) * size + e;
      experts.emplace_back(-choice[id], static_cast<int32_t>(id));
    }
  std::ranges::sort(experts);
  Reference r;
  for (int64_t j = 0; j < rule.top_k; ++j) r.ids.push_back(experts[static_cast<size_t>(j)].second);
  std::ranges::sort(r.ids);
  r.weights = weights_of(scores, r.ids, rule);
  return r;
}

TEST_P(Router, AgreesWithTheRuleInDoubles) {
  constexpr int64_t kTokens = 150;
  for (const RouterRule& rule : router_rules()) {
    const Array logits = Array::random({kTokens, rule.num_experts}, 3, 1.5);
    const Array bias = Array::random({rule.num_experts}, 4, 0.1);
    for (const bool has_bias : {false, true}) {
      const Routed routed = route(ctx_, logits, has_bias ? &bias : nullptr, rule);
      const std::vector<double> values = doubles(logits);
      std::vector<double> weights;
      for (int64_t t = 0; t < kTokens; ++t) {
        const Reference r = route_row(values.data() + t * rule.num_experts,
                                      has_bias ? doubles(bias) : std::vector<double>{}, rule);
        const auto* ids = routed.ids.data() + t * rule.top_k;
        EXPECT_EQ(Ints(ids, ids + rule.top_k), r.ids) << "token " << t;
        weights.insert(weights.end(), r.weights.begin(), r.weights.end());
      }
      EXPECT_TRUE(close(routed.weights, weights, 1e-5, 1e-7)) << rule.num_experts;
    }
  }
}

TEST_P(Router, EqualScoresGoToTheLowerExpertAndGroup) {
  const Array logits = Array::of({1, 2, 2, 2, 0, 0, 0, 0, 5, 5, 5, 5}, {3, 4});
  EXPECT_EQ(route(ctx_, logits, nullptr, {.num_experts = 4, .top_k = 2}).ids,
            (Ints{1, 2, 0, 1, 0, 1}));
  const RouterRule groups{.num_experts = 4, .top_k = 1, .num_groups = 2, .kept_groups = 1};
  EXPECT_EQ(route(ctx_, logits, nullptr, groups).ids, (Ints{2, 0, 0}));
}

// The bias affects only the choice of experts, not their weights.
TEST_P(Router, TheBiasChoosesAndDoesNotWeigh) {
  const RouterRule rule{
      .num_experts = 3, .top_k = 1, .score = RouterScore::kSigmoid, .normalized = false};
  const Array logits = Array::of({0, 1, 2}, {1, 3}), bias = Array::of({10, 0, 0}, {3});
  const Routed routed = route(ctx_, logits, &bias, rule);
  EXPECT_EQ(routed.ids, Ints{0});
  EXPECT_EQ(routed.weights[0], 0.5f);
}

TEST_P(Router, BackwardAgreesWithDifferences) {
  for (const RouterRule& rule : router_rules()) {
    if (rule.num_experts > 20) continue;  // numeric differences need a forward for every logit
    const Array logits = Array::random({5, rule.num_experts}, 8, 1.5);
    Routed routed = route(ctx_, logits, nullptr, rule);
    const Array dweights = Array::random({5, rule.top_k}, 9);
    Array dlogits({5, rule.num_experts});
    route_backward(ctx_, dlogits, dweights, view(routed.ids, {5, rule.top_k}), logits, rule);
    const auto f = [&](const std::vector<double>& values) {
      std::vector<double> weights;
      for (int64_t t = 0; t < 5; ++t) {
        const auto* ids = routed.ids.data() + t * rule.top_k;
        const auto row = weights_of(scores_of(values.data() + t * rule.num_experts, rule),
                                    Ints(ids, ids + rule.top_k), rule);
        weights.insert(weights.end(), row.begin(), row.end());
      }
      return weights;
    };
    EXPECT_TRUE(close(dlogits, numeric_gradient(doubles(logits), doubles(dweights), f), 1e-4, 1e-6))
        << rule.num_experts;
  }
}

}  // namespace
}  // namespace slimexx::ops::testing
