// Tests the effects of training MTP layers: what changes, what stays unchanged, and what has no
// influence.
#include "train/passes/mtp_pass.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "model/random_model.h"
#include "slimexx/dist/thread_ranks.h"
#include "train/oracle.h"
#include "train/tiny_policy.h"

namespace slimexx::train {
namespace {

// f32 sums in another order
constexpr double kRounding = 1e-5;

using Values = std::map<std::string, std::vector<float>>;  // by parameter

struct Outcome {
  StepResult result;
  Values gradients, before, after;
};

std::vector<Sample> samples() {
  std::vector<Sample> all = mixed_samples(9, 41, 320);
  // Too short for an MTP layer: its only response token is the second token.
  all.push_back({.tokens = {7, 8}, .response_length = 1, .loss_mask = {1}});
  for (auto field : {&Sample::advantages, &Sample::old_log_probs, &Sample::ref_log_probs,
                     &Sample::rollout_log_probs})
    (all.back().*field) = {0.25f};
  return all;
}

OptimizerOptions unclipped() {
  OptimizerOptions optimizer;
  optimizer.clip_grad = 0;  // the norm includes MTP gradients
  return optimizer;
}

Outcome run_step(const std::string& family, bool trains_mtp, const TrainOptions& options,
                 int num_ranks = 1, double learning_rate = 0.01) {
  Outcome outcome;
  dist::run_thread_ranks(num_ranks, [&](dist::Collective& ranks) {
    Oracle policy(test_data_path("golden/oracle/") + family, trains_mtp);
    const auto values_of = [&](auto read) {
      Values values;
      for (const auto& info : policy.store.infos()) {
        auto& own = values[info.name];
        own.resize(static_cast<size_t>(info.num_elements()));
        (policy.store.*read)(info, 0, own.data(), info.num_elements());
      }
      return values;
    };
    Trainer trainer(policy.decoder, policy.store, ranks, dist::data_parallel_groups(ranks), options,
                    unclipped(), 0.9f, {});
    // Values left in the gradient memory must not count.
    for (const auto& info : policy.store.infos())
      if (info.trainable)
        std::fill_n(policy.store.gradient(info.id).f32(), info.num_elements(), 7.f);
    Outcome own;
    own.before = values_of(&model::ParameterStore::read_weights);
    own.result = trainer.step(samples(), full_loss(), learning_rate, [&] {
      trainer.gather_gradients();
      own.gradients = values_of(&model::ParameterStore::read_gradients);
    });
    own.after = values_of(&model::ParameterStore::read_weights);
    if (ranks.rank() == 0) outcome = std::move(own);
  });
  return outcome;
}

bool is_mtp(const std::string& parameter) { return parameter.starts_with("layers.4."); }
bool is_copy(const std::string& parameter) {
  return parameter == "layers.4.embedding.weight" || parameter == "layers.4.head.weight";
}
// Whether the parameter has no gradient: a copy, or a correction bias, which has its own update
// rule.
bool is_frozen(const std::string& parameter) {
  return is_copy(parameter) || parameter.ends_with("correction_bias");
}

class MtpTraining : public testing::TestWithParam<std::string> {};

// The MTP loss changes no bit of the gradients of embedding, trunk and head: with one microbatch,
// which writes gradients, and with several, which add to them.
TEST_P(MtpTraining, OtherGradientsAreBitEqualToARunWithoutIt) {
  for (const int64_t tokens : {4096, 50}) {
    for (const int num_ranks : {1, 2}) {
      const Outcome with = run_step(GetParam(), true, packed(tokens), num_ranks);
      const Outcome without = run_step(GetParam(), false, packed(tokens), num_ranks);
      size_t compared = 0;
      for (const auto& [name, expected] : without.gradients) {
        if (is_mtp(name)) continue;
        EXPECT_EQ(first_difference(with.gradients.at(name), expected), "") << name;
        EXPECT_EQ(first_difference(with.after.at(name), without.after.at(name)), "") << name;
        ++compared;
      }
      EXPECT_GT(compared, 30u);
      for (int64_t m = 0; m < ops::kNumLossMetrics; ++m)
        EXPECT_EQ(with.result.metrics[m], without.result.metrics[m]) << "metric " << m;
      EXPECT_GT(with.result.gradient_norm, without.result.gradient_norm);
      EXPECT_GT(with.result.flops, without.result.flops);
    }
  }
}

TEST_P(MtpTraining, ChangesItsOwnWeights) {
  const Outcome with = run_step(GetParam(), true, packed(60));
  for (const auto& [name, before] : with.before) {
    if (!is_mtp(name)) continue;
    const bool stays = is_frozen(name) && !is_copy(name);
    EXPECT_EQ(first_difference(with.after.at(name), before).empty(), stays) << name;
    const auto& gradient = with.gradients.at(name);
    EXPECT_EQ(std::ranges::all_of(gradient, [](float g) { return g == 0; }), is_frozen(name))
        << name;
  }
}

// The oracle whose MTP layer has copies of embedding and head, as published models have them.
constexpr const char* kWithCopies = "glm4_moe";

// The copies are exported for other engines, so they must follow the trained tensors.
TEST(MtpCopies, FollowEmbeddingAndHead) {
  const Outcome with = run_step(kWithCopies, true, packed(60));
  for (const auto& [copy, original] : {std::pair{"layers.4.embedding.weight", "embedding.weight"},
                                       std::pair{"layers.4.head.weight", "lm_head.weight"}}) {
    const auto &before = with.before.at(original), &after = with.after.at(original);
    EXPECT_EQ(first_difference(with.before.at(copy), before), "") << copy;
    EXPECT_NE(first_difference(after, before), "") << original;
    EXPECT_EQ(first_difference(with.after.at(copy), after), "") << copy;
  }
}

// A tensor that differs in one element is not a copy.
TEST(MtpCopies, OthersStayAsTheyWereLoaded) {
  Oracle policy(test_data_path("golden/oracle/") + kWithCopies, true);
  const model::ParameterInfo& head =
      policy.store.infos().at(static_cast<size_t>(policy.store.find("layers.4.head.weight")));
  std::vector<float> other(static_cast<size_t>(head.num_elements())), after(other.size());
  policy.store.read_weights(head, 0, other.data(), head.num_elements());
  other.back() += 0.5f;
  policy.store.write_weights(head, 0, other.data(), head.num_elements());
  dist::Collective alone;
  Trainer trainer(policy.decoder, policy.store, alone, dist::groups_of_one(), packed(60),
                  unclipped(), 0.9f, {});
  trainer.step(samples(), full_loss(), 0.01);
  policy.store.read_weights(head, 0, after.data(), head.num_elements());
  EXPECT_EQ(first_difference(after, other), "");
}

TEST_P(MtpTraining, LayersThatAreNotTrainedKeepTheirBytes) {
  const Outcome without = run_step(GetParam(), false, packed(60));
  EXPECT_TRUE(without.result.mtp_losses.empty());
  for (const auto& [name, before] : without.before) {
    if (!is_mtp(name)) continue;
    EXPECT_EQ(first_difference(without.after.at(name), before), "") << name;
  }
}

TEST_P(MtpTraining, DoesNotDependOnPackingRecomputationOrRanks) {
  const Outcome expected = run_step(GetParam(), true, packed(4096));
  ASSERT_EQ(expected.result.num_microbatches, 1);
  struct Variation {
    int num_ranks;
    TrainOptions options;
  };
  std::vector<Variation> variations = {
      {1, packed(1)}, {1, packed(50)}, {2, packed(50)}, {3, packed(40, false)}, {2, packed(4096)}};
  variations.push_back({1, packed(4096)});
  variations.back().options.recompute_granularity = "full";
  variations.push_back({1, packed(4096)});
  variations.back().options.max_logits_gib = 1e-5;  // a few rows at once
  for (const Variation& v : variations) {
    SCOPED_TRACE(std::to_string(v.options.max_tokens_per_gpu) + " tokens, " +
                 std::to_string(v.num_ranks) + " ranks");
    const Outcome actual = run_step(GetParam(), true, v.options, v.num_ranks);
    ASSERT_EQ(actual.result.mtp_losses.size(), 1u);
    EXPECT_NEAR(actual.result.mtp_losses[0], expected.result.mtp_losses[0], kRounding);
    EXPECT_EQ(actual.result.flops, expected.result.flops);
    for (const auto& [name, gradient] : expected.gradients) {
      if (!is_mtp(name) || is_frozen(name)) continue;
      EXPECT_LT(relative_distance(actual.gradients.at(name), gradient), kRounding) << name;
    }
  }
}

// The factor scales gradients, not metrics.
TEST_P(MtpTraining, FactorScalesItsGradients) {
  TrainOptions whole = packed(60), quarter = packed(60);
  whole.mtp_loss_scaling_factor = 1;
  quarter.mtp_loss_scaling_factor = 0.25;
  const Outcome a = run_step(GetParam(), true, whole), b = run_step(GetParam(), true, quarter);
  EXPECT_EQ(a.result.mtp_losses, b.result.mtp_losses);
  for (const auto& [name, gradient] : a.gradients) {
    if (!is_mtp(name) || is_frozen(name)) continue;
    std::vector<float> scaled = b.gradients.at(name);
    for (float& g : scaled) g *= 4;
    EXPECT_LT(relative_distance(scaled, gradient), kRounding) << name;
  }
}

TEST_P(MtpTraining, StepsLowerItsLoss) {
  Oracle policy(test_data_path("golden/oracle/") + GetParam(), true);
  TrainOptions options = packed(100);
  options.mtp_loss_scaling_factor = 1;
  dist::Collective alone;
  Trainer trainer(policy.decoder, policy.store, alone, dist::groups_of_one(), options, unclipped(),
                  1, {});
  StepLoss loss;
  loss.policy.kind = ops::LossKind::kSft;
  std::vector<double> losses;
  for (int step = 0; step < 12; ++step)
    losses.push_back(trainer.step(samples(), loss, 0.01).mtp_losses[0]);
  EXPECT_LT(losses.back(), 0.7 * losses.front());
}

// The plan includes the MTP pass: a step fits in the planned memory.
TEST_P(MtpTraining, FitsThePlannedMemory) {
  constexpr int64_t kLongest = 40, kTokens = 120;
  dist::Collective alone;
  Values expected;
  for (const bool is_least : {true, false}) {
    Oracle policy(test_data_path("golden/oracle/") + GetParam(), true);
    Trainer trainer(policy.decoder, policy.store, alone, dist::groups_of_one(), packed(kTokens),
                    unclipped(), 1, {});
    const ActivationBytes plan = trainer.plans().plan_activations(kLongest, 10);
    const int64_t bytes = is_least ? plan.least : plan.most;
    const tensor::Buffer memory({}, bytes, "activations");
    trainer.memory().borrow(memory.view(tensor::DType::kU8, {bytes}));
    const int64_t buffers = tensor::allocation_counters({}).num_allocations;
    trainer.step(samples(), full_loss(), 0.01);
    EXPECT_EQ(tensor::allocation_counters({}).num_allocations, buffers);
    for (const auto& info : policy.store.infos()) {
      std::vector<float> values(static_cast<size_t>(info.num_elements()));
      policy.store.read_weights(info, 0, values.data(), info.num_elements());
      const auto& wanted = expected.emplace(info.name, values).first->second;
      EXPECT_EQ(first_difference(values, wanted), "") << info.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, MtpTraining,
                         testing::Values("glm4_moe", "glm4_moe_lite", "deepseek_v3"),
                         [](const auto& instance) { return instance.param; });

// Two samples, packed: prompts of 2 and 1 tokens.
TEST(MtpLabels, RollWithinEachSampleAndSkipWhatIsMasked) {
  const std::vector<Sample> two = {
      {.tokens = {10, 11, 12, 13, 14}, .response_length = 3, .loss_mask = {1, 0, 1}},
      {.tokens = {20, 21, 22, 23}, .response_length = 3, .loss_mask = {1, 1, 1}}};
  const std::vector<int64_t> indices = {0, 1};
  const MtpLabels first = list_mtp_labels(two, indices, 0);
  EXPECT_EQ(first.tokens, (std::vector<int32_t>{11, 12, 13, 14, 0, 21, 22, 23, 0}));
  EXPECT_EQ(first.rows, (std::vector<int32_t>{0, 2, 5, 6}));
  EXPECT_EQ(first.targets, (std::vector<int32_t>{12, 14, 22, 23}));
  const MtpLabels second = list_mtp_labels(two, indices, 1);
  EXPECT_EQ(second.tokens, (std::vector<int32_t>{12, 13, 14, 0, 0, 22, 23, 0, 0}));
  EXPECT_EQ(second.rows, (std::vector<int32_t>{1, 5}));
  EXPECT_EQ(second.targets, (std::vector<int32_t>{14, 23}));
  const MtpWork work = make_mtp_work(two, 3, 0.6);
  EXPECT_EQ(work.num_labels, (std::vector<int64_t>{4, 2, 1})) << "no label counts as one";
  EXPECT_FLOAT_EQ(work.factor, 0.2f);
}

// A model with two MTP layers. Every token uses all experts, so that the loss is smooth.
model::ModelSpec spec_of_two() {
  model::ModelSpec spec = model::random_spec("glm4_moe",
                                             {.vocab_size = 64,
                                              .hidden_size = 24,
                                              .intermediate_size = 32,
                                              .head_dim = 8,
                                              .max_positions = 64},
                                             0.3);
  model::LayerSpec layer = spec.layers.back();
  auto& router = std::get<model::MoeMlpSpec>(layer.mlp).router;
  router.top_k = router.num_experts;
  spec.mtp.assign(2, {.layer = layer, .is_trained = true});
  return spec;
}

// The second layer's loss also reaches the first through the hidden states. Compares gradients with
// finite differences of the loss, per parameter.
TEST(MtpLayers, GradientsAreTheSlopesOfTheirLoss) {
  constexpr double kFactor = 0.5, kDistance = 1e-2, kTolerance = 1e-2;
  model::RandomModel policy(spec_of_two(), {}, true);
  dist::Collective alone;
  const std::vector<Sample> batch = mixed_samples(5, 43, 64);
  TrainOptions options = packed(60);
  options.mtp_loss_scaling_factor = kFactor;
  const auto step = [&] {
    Trainer trainer(policy.decoder, policy.store, alone, dist::groups_of_one(), options,
                    unclipped(), 1, {});
    const StepResult result = trainer.step(batch, full_loss(), 0);
    EXPECT_EQ(result.mtp_losses.size(), 2u);
    return kFactor * (result.mtp_losses[0] + result.mtp_losses[1]) / 2;
  };
  step();
  Values gradients;
  for (const auto& info : policy.store.infos())
    gradients[info.name] = floats_of(policy.store.gradient(info.id));
  size_t compared = 0;
  for (const auto& info : policy.store.infos()) {
    if (!info.name.starts_with("layers.2.") && !info.name.starts_with("layers.3.")) continue;
    if (!info.trainable) continue;
    const std::vector<float>& g = gradients.at(info.name);
    double squares = 0;
    for (const float value : g) squares += double{value} * value;
    const double norm = std::sqrt(squares);
    if (norm < 1e-3) continue;  // below the resolution of f32 loss differences
    const std::vector<float> start = policy.weight_values(info);
    const auto loss_at = [&](double distance) {
      std::vector<float> moved = start;
      for (size_t i = 0; i < g.size(); ++i)
        moved[i] += static_cast<float>(distance * double{g[i]} / norm);
      policy.store.write_weights(info, 0, moved.data(), info.num_elements());
      return step();
    };
    const double slope = (loss_at(kDistance) - loss_at(-kDistance)) / (2 * kDistance);
    policy.store.write_weights(info, 0, start.data(), info.num_elements());
    EXPECT_NEAR(slope / norm, 1, kTolerance) << info.name << ", gradient " << norm;
    ++compared;
  }
  EXPECT_GT(compared, 20u);
}

}  // namespace
}  // namespace slimexx::train
