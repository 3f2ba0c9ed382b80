#include "slimexx/ops/router.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/cpu/cpu_ops.h"
#include "slimexx/base/thread_pool.h"

namespace slimexx::ops::cpu {
namespace {

constexpr float kExcluded = -std::numeric_limits<float>::infinity();

// scores[E] of one token, experts ascending.
void score_row(const float* logits, const RouterRule& rule, float* scores) {
  const int64_t n = rule.num_experts;
  if (rule.score == RouterScore::kSigmoid) {
    for (int64_t e = 0; e < n; ++e) scores[e] = 1.0f / (1.0f + std::exp(-logits[e]));
    return;
  }
  const float largest = *std::max_element(logits, logits + n);
  float sum = 0;
  for (int64_t e = 0; e < n; ++e) sum += scores[e] = std::exp(logits[e] - largest);
  for (int64_t e = 0; e < n; ++e) scores[e] /= sum;
}

// Excludes the experts outside the kept groups from `choice` [E].
void limit_groups(const RouterRule& rule, float* choice) {
  if (rule.kept_groups == rule.num_groups) return;
  const int64_t size = rule.num_experts / rule.num_groups;
  std::vector<float> best(static_cast<size_t>(rule.num_groups));
  for (int64_t g = 0; g < rule.num_groups; ++g) {
    float first = kExcluded, second = kExcluded;
    for (int64_t e = g * size; e < (g + 1) * size; ++e) {
      if (choice[e] > first) {
        second = first;
        first = choice[e];
      } else if (choice[e] > second) {
        second = choice[e];
      }
    }
    best[static_cast<size_t>(g)] = size == 1 ? first : first + second;
  }
  std::vector<bool> kept(best.size());
  for (int64_t i = 0; i < rule.kept_groups; ++i) {
    size_t winner = best.size();
    for (size_t g = 0; g < best.size(); ++g)
      if (!kept[g] && (winner == best.size() || best[g] > best[winner])) winner = g;
    kept[winner] = true;
  }
  for (int64_t e = 0; e < rule.num_experts; ++e)
    if (!kept[static_cast<size_t>(e / size)]) choice[e] = kExcluded;
}

// ids[k] ascending: the experts with the largest `choice` [E]; overwrites `choice`.
void choose_experts(const RouterRule& rule, float* choice, int32_t* ids) {
  for (int64_t j = 0; j < rule.top_k; ++j) {
    const float* winner =
        std::max_element(choice, choice + rule.num_experts);  // the first if several are equal
    ids[j] = static_cast<int32_t>(winner - choice);
    choice[ids[j]] = kExcluded;
  }
  std::sort(ids, ids + rule.top_k);
}

float sum_of_chosen(const RouterRule& rule, const float* scores, const int32_t* ids) {
  float sum = rule.epsilon;
  for (int64_t j = 0; j < rule.top_k; ++j) sum += scores[ids[j]];
  return sum;
}

// dscores[E], zero except for the chosen experts.
void weights_backward(const RouterRule& rule, const float* dweights, const float* scores,
                      const int32_t* ids, float* dscores) {
  std::fill(dscores, dscores + rule.num_experts, 0.0f);
  const float sum = rule.normalized ? sum_of_chosen(rule, scores, ids) : 1.0f;
  float mean = 0;
  for (int64_t j = 0; j < rule.top_k && rule.normalized; ++j)
    mean += dweights[j] * scores[ids[j]] / sum;
  for (int64_t j = 0; j < rule.top_k; ++j)
    dscores[ids[j]] = rule.scaling_factor / sum * (dweights[j] - mean);
}

// dlogits[E]; it may be dscores.
void score_backward(const RouterRule& rule, const float* dscores, const float* scores,
                    float* dlogits) {
  float mean = 0;
  if (rule.score == RouterScore::kSoftmax)
    for (int64_t e = 0; e < rule.num_experts; ++e) mean += dscores[e] * scores[e];
  for (int64_t e = 0; e < rule.num_experts; ++e) {
    const float slope = rule.score == RouterScore::kSoftmax ? 1.0f : 1.0f - scores[e];
    dlogits[e] = scores[e] * slope * (dscores[e] - mean);
  }
}

}  // namespace

void route_forward(Tensor ids, Tensor weights, Tensor logits, Tensor bias, const RouterRule& rule) {
  const int64_t n = rule.num_experts, k = rule.top_k;
  parallel_for(logits.dim(0), 64, [&](int64_t begin, int64_t end) {
    std::vector<float> scores(static_cast<size_t>(n)), choice(scores.size());
    for (int64_t t = begin; t < end; ++t) {
      int32_t* own = ids.data<int32_t>() + t * k;
      score_row(logits.f32() + t * n, rule, scores.data());
      for (size_t e = 0; e < scores.size(); ++e)
        choice[e] = scores[e] + (bias.defined() ? bias.f32()[e] : 0.0f);
      limit_groups(rule, choice.data());
      choose_experts(rule, choice.data(), own);
      const float sum = rule.normalized ? sum_of_chosen(rule, scores.data(), own) : 1.0f;
      for (int64_t j = 0; j < k; ++j)
        weights.f32()[t * k + j] = scores[static_cast<size_t>(own[j])] / sum * rule.scaling_factor;
    }
  });
}

void route_backward(Tensor dlogits, Tensor dweights, Tensor ids, Tensor logits,
                    const RouterRule& rule) {
  const int64_t n = rule.num_experts, k = rule.top_k;
  parallel_for(logits.dim(0), 64, [&](int64_t begin, int64_t end) {
    std::vector<float> scores(static_cast<size_t>(n));
    for (int64_t t = begin; t < end; ++t) {
      float* own = dlogits.f32() + t * n;
      score_row(logits.f32() + t * n, rule, scores.data());
      weights_backward(rule, dweights.f32() + t * k, scores.data(), ids.data<int32_t>() + t * k,
                       own);
      score_backward(rule, own, scores.data(), own);
    }
  });
}

}  // namespace slimexx::ops::cpu
