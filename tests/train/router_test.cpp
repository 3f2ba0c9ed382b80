// Tests that router metrics, balancing losses and the update of correction biases match their
// definitions for any packing and number of ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "model/random_model.h"
#include "slimexx/dist/thread_ranks.h"
#include "slimexx/ops/router_balance.h"
#include "train/oracle.h"
#include "train/tiny_policy.h"

namespace slimexx::train {
namespace {

constexpr double kRounding = 1e-5;  // f32 sums in another order
constexpr float kRate = 0.125f;     // biases move by whole multiples of it, without rounding

using Values = std::map<std::string, std::vector<float>>;  // by parameter

struct Outcome {
  StepResult result;
  Values gradients, before, after;
};

bool is_bias(const std::string& parameter) { return parameter.ends_with("correction_bias"); }

template <class Read>
Values values_of(const model::ParameterStore& store, Read read) {
  Values values;
  for (const auto& info : store.infos()) {
    auto& own = values[info.name];
    own.resize(static_cast<size_t>(info.num_elements()));
    (store.*read)(info, 0, own.data(), info.num_elements());
  }
  return values;
}

Outcome run_step(const std::string& family, const TrainOptions& options, int num_ranks = 1,
                 const std::vector<Sample>& samples = mixed_samples(9, 41, 320)) {
  Outcome outcome;
  dist::run_thread_ranks(num_ranks, [&](dist::Collective& ranks) {
    Oracle policy(test_data_path("golden/oracle/") + family);
    OptimizerOptions optimizer;
    optimizer.clip_grad = 0;
    Trainer trainer(policy.decoder, policy.store, ranks, dist::data_parallel_groups(ranks), options,
                    optimizer, 0.9f, {});
    Outcome own;
    own.before = values_of(policy.store, &model::ParameterStore::read_weights);
    own.result = trainer.step(samples, full_loss(), 0.01, [&] {
      trainer.gather_gradients();
      own.gradients = values_of(policy.store, &model::ParameterStore::read_gradients);
    });
    own.after = values_of(policy.store, &model::ParameterStore::read_weights);
    if (ranks.rank() == 0) outcome = std::move(own);
  });
  return outcome;
}

TrainOptions balanced(TrainOptions options) {
  options.moe_router_bias_update_rate = kRate;
  options.moe_aux_loss_coeff = 0.5;
  options.moe_z_loss_coeff = 0.25;
  return options;
}

class Routers : public testing::TestWithParam<std::string> {};

TEST_P(Routers, EveryTokenIsCountedOnce) {
  const std::vector<Sample> samples = mixed_samples(9, 41, 320);
  const Outcome outcome = run_step(GetParam(), packed(60));
  const Oracle model(test_data_path("golden/oracle/") + GetParam());
  size_t at = 0;
  for (int64_t layer = 0; layer < model.spec.num_layers(); ++layer) {
    const auto* moe = std::get_if<model::MoeMlpSpec>(&model.spec.layer(layer).mlp);
    if (moe == nullptr) continue;
    ASSERT_LT(at, outcome.result.routers.size());
    const RouterLoad& load = outcome.result.routers[at++];
    EXPECT_EQ(load.layer, layer);
    ASSERT_EQ(std::ssize(load.tokens), moe->router.num_experts);
    const auto choices = static_cast<double>(outcome.result.num_tokens * moe->router.top_k);
    EXPECT_EQ(std::accumulate(load.tokens.begin(), load.tokens.end(), 0.0), choices);
    const double mean = choices / static_cast<double>(moe->router.num_experts);
    EXPECT_EQ(load.max_load, static_cast<double>(std::ranges::max(load.tokens)) / mean);
    EXPECT_EQ(load.min_load, static_cast<double>(std::ranges::min(load.tokens)) / mean);
    EXPECT_GT(load.entropy, 0.5 * std::log(static_cast<double>(moe->router.num_experts)));
    EXPECT_LE(load.entropy, std::log(static_cast<double>(moe->router.num_experts)) + 1e-9);
    EXPECT_GT(load.aux_loss, 0.5);
    EXPECT_GT(load.z_loss, 0);
  }
  EXPECT_EQ(at, outcome.result.routers.size());
  EXPECT_GT(at, 0u);
}

TEST_P(Routers, PackingRecomputationAndRanksChangeNoBitOfLoadsAndBiases) {
  const Outcome expected = run_step(GetParam(), balanced(packed(4096)));
  ASSERT_EQ(expected.result.num_microbatches, 1);
  struct Variation {
    int num_ranks;
    TrainOptions options;
  };
  std::vector<Variation> variations = {
      {1, packed(1)}, {1, packed(50)}, {2, packed(50)}, {3, packed(40, false)}, {2, packed(4096)}};
  variations.push_back({1, packed(4096)});
  variations.back().options.recompute_granularity = "full";
  for (const Variation& v : variations) {
    SCOPED_TRACE(std::to_string(v.options.max_tokens_per_gpu) + " tokens, " +
                 std::to_string(v.num_ranks) + " ranks");
    const Outcome actual = run_step(GetParam(), balanced(v.options), v.num_ranks);
    ASSERT_EQ(actual.result.routers.size(), expected.result.routers.size());
    for (size_t i = 0; i < expected.result.routers.size(); ++i) {
      const RouterLoad &a = actual.result.routers[i], &e = expected.result.routers[i];
      EXPECT_EQ(a.tokens, e.tokens);
      EXPECT_EQ(a.entropy, e.entropy);
      EXPECT_EQ(a.aux_loss, e.aux_loss);
      EXPECT_EQ(a.z_loss, e.z_loss);
    }
    for (const auto& [name, gradient] : expected.gradients) {
      if (is_bias(name)) {
        EXPECT_EQ(first_difference(actual.after.at(name), expected.after.at(name)), "") << name;
      } else if (!name.starts_with("layers.4.")) {
        EXPECT_LT(relative_distance(actual.gradients.at(name), gradient), kRounding) << name;
      }
    }
  }
}

TEST_P(Routers, OnlyTheRateMovesABias) {
  const Outcome without = run_step(GetParam(), packed(60));
  TrainOptions options = packed(60);
  options.moe_router_bias_update_rate = kRate;
  const Outcome with = run_step(GetParam(), options);
  for (const auto& [name, gradient] : without.gradients) {
    EXPECT_EQ(first_difference(with.gradients.at(name), gradient), "") << name;
    if (is_bias(name))
      EXPECT_EQ(first_difference(without.after.at(name), without.before.at(name)), "") << name;
    else
      EXPECT_EQ(first_difference(with.after.at(name), without.after.at(name)), "") << name;
  }
  size_t moved = 0;
  for (const RouterLoad& load : with.result.routers) {
    const std::string name = "layers." + std::to_string(load.layer) + ".mlp.router.correction_bias";
    if (!with.before.contains(name)) continue;
    const auto total = std::accumulate(load.tokens.begin(), load.tokens.end(), int64_t{0});
    for (size_t e = 0; e < load.tokens.size(); ++e) {
      const int64_t own = load.tokens[e] * std::ssize(load.tokens);
      const float shift = own < total ? kRate : own > total ? -kRate : 0.0f;
      EXPECT_EQ(with.after.at(name)[e], with.before.at(name)[e] + shift) << name << " " << e;
      moved += shift != 0 ? 1 : 0;
    }
  }
  EXPECT_EQ(moved > 0, GetParam() != "qwen3_moe");
}

TEST_P(Routers, ASkippedStepMovesNoBias) {
  std::vector<Sample> samples = mixed_samples(9, 41, 320);
  std::ranges::fill(samples[0].advantages, std::numeric_limits<float>::quiet_NaN());
  std::ranges::fill(samples[0].loss_mask, uint8_t{1});
  TrainOptions options = packed(60);
  options.moe_router_bias_update_rate = kRate;
  const Outcome outcome = run_step(GetParam(), options, 1, samples);
  ASSERT_TRUE(outcome.result.skipped);
  for (const auto& [name, before] : outcome.before)
    EXPECT_EQ(first_difference(outcome.after.at(name), before), "") << name;
}

// The plan includes the scratch for the routers' sums.
TEST_P(Routers, FitThePlannedMemory) {
  constexpr int64_t kLongest = 40, kTokens = 120;
  dist::Collective alone;
  Oracle policy(test_data_path("golden/oracle/") + GetParam());
  Trainer trainer(policy.decoder, policy.store, alone, dist::groups_of_one(),
                  balanced(packed(kTokens)), {}, 1, {});
  const int64_t bytes = trainer.plans().plan_activations(kLongest, 10).least;
  const tensor::Buffer memory({}, bytes, "activations");
  trainer.memory().borrow(memory.view(tensor::DType::kU8, {bytes}));
  const int64_t buffers = tensor::allocation_counters({}).num_allocations;
  trainer.step(mixed_samples(9, 41, 320), full_loss(), 0.01);
  EXPECT_EQ(tensor::allocation_counters({}).num_allocations, buffers);
}

INSTANTIATE_TEST_SUITE_P(Families, Routers,
                         testing::Values("qwen3_moe", "glm4_moe", "glm4_moe_lite", "deepseek_v3"),
                         [](const auto& instance) { return instance.param; });

TEST(RouterSteps, EvenOutWhatTheBiasCanReach) {
  Oracle policy(test_data_path("golden/oracle/glm4_moe"));
  dist::Collective alone;
  TrainOptions options = packed(100);
  options.moe_router_bias_update_rate = 0.01;
  Trainer trainer(policy.decoder, policy.store, alone, dist::groups_of_one(), options, {}, 1, {});
  std::vector<double> loads;
  for (int step = 0; step < 40; ++step) {
    double sum = 0;
    for (const RouterLoad& load : trainer.step(mixed_samples(9, 41, 320), full_loss(), 0).routers)
      sum += load.max_load;
    loads.push_back(sum);
  }
  EXPECT_LT(loads.back(), loads.front());
}

// Biases fix every routing choice, so that the losses are smooth in the weights. The gradients of
// these losses, without those of the policy loss, must equal the slopes of the reported losses.
TEST(RouterLosses, GradientsAreTheSlopesOfWhatIsReported) {
  constexpr double kAux = 2, kZ = 0.5, kDistance = 1e-2, kTolerance = 1e-2;
  model::RandomModel policy(model::random_spec("glm4_moe",
                                               {.vocab_size = 64,
                                                .hidden_size = 24,
                                                .intermediate_size = 32,
                                                .head_dim = 8,
                                                .max_positions = 64,
                                                .num_layers = 3},
                                               0.3),
                            {}, true);
  for (const auto& info : policy.store.infos()) {
    if (!is_bias(info.name)) continue;
    std::vector<float> bias(static_cast<size_t>(info.num_elements()));
    bias[1] = bias[4] = 10;
    policy.store.write_weights(info, 0, bias.data(), info.num_elements());
  }
  dist::Collective alone;
  const std::vector<Sample> batch = mixed_samples(5, 43, 64);
  const auto step = [&](double aux, double z) {
    TrainOptions options = packed(60);
    options.moe_aux_loss_coeff = aux;
    options.moe_z_loss_coeff = z;
    OptimizerOptions optimizer;
    optimizer.clip_grad = 0;
    Trainer trainer(policy.decoder, policy.store, alone, dist::groups_of_one(), options, optimizer,
                    1, {});
    double loss = 0;
    for (const RouterLoad& load : trainer.step(batch, full_loss(), 0).routers)
      loss += kAux * load.aux_loss + kZ * load.z_loss;
    return loss;
  };
  const auto gradients = [&] {
    return values_of(policy.store, &model::ParameterStore::read_gradients);
  };
  step(0, 0);
  const Values without = gradients();
  step(kAux, kZ);
  const Values with = gradients();
  size_t compared = 0;
  for (const auto& info : policy.store.infos()) {
    if (!info.trainable) continue;
    std::vector<double> g;
    double squares = 0;
    for (size_t i = 0; i < with.at(info.name).size(); ++i) {
      g.push_back(double{with.at(info.name)[i]} - double{without.at(info.name)[i]});
      squares += g.back() * g.back();
    }
    const double norm = std::sqrt(squares);
    if (norm < 1e-2) continue;  // below the resolution of f32 differences
    const std::vector<float> start = policy.weight_values(info);
    const auto loss_at = [&](double distance) {
      std::vector<float> moved = start;
      for (size_t i = 0; i < g.size(); ++i) moved[i] += static_cast<float>(distance * g[i] / norm);
      policy.store.write_weights(info, 0, moved.data(), info.num_elements());
      return step(0, 0);
    };
    const double slope = (loss_at(kDistance) - loss_at(-kDistance)) / (2 * kDistance);
    policy.store.write_weights(info, 0, start.data(), info.num_elements());
    EXPECT_NEAR(slope / norm, 1, kTolerance) << info.name << ", gradient " << norm;
    ++compared;
  }
  EXPECT_GT(compared, 10u);
}

TEST(RouterLoads, AreSummedUpByHand) {
  const auto one = static_cast<int64_t>(kernels::kProbabilityUnits);
  const RouterLoad load = summarize_router(
      3, {6, 2, 1 * one, 3 * one, static_cast<int64_t>(1.5 * kernels::kAuxLossUnits),
          static_cast<int64_t>(0.25 * kernels::kZLossUnits)});
  EXPECT_EQ(load.layer, 3);
  EXPECT_EQ(load.tokens, (std::vector<int64_t>{6, 2}));
  EXPECT_EQ(load.max_load, 1.5);
  EXPECT_EQ(load.min_load, 0.5);
  EXPECT_NEAR(load.entropy, -(0.25 * std::log(0.25) + 0.75 * std::log(0.75)), 1e-12);
  EXPECT_EQ(load.aux_loss, 1.5);
  EXPECT_EQ(load.z_loss, 0.25);
}

}  // namespace
}  // namespace slimexx::train
