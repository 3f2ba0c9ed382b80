// Tests that training steps on the device are reproducible, allocate nothing after warm-up, and
// give log-probs that do not depend on packing.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <limits>
#include <tuple>

#include "model/random_model_cuda.h"
#include "slimexx/ops/policy_loss.h"
#include "train/listed_step.h"
#include "train/tiny_policy.h"

namespace slimexx::train {
namespace {

using model::RandomModel;
using model::test_device;

// Bound for loss and gradient norm: bf16 activations against f32 ones.
constexpr double kBound = 5e-3;

double norm_of(const std::vector<float>& values) {
  double squares = 0;
  for (const float value : values) squares += double{value} * value;
  return std::sqrt(squares);
}

std::vector<Sample> samples_of(uint64_t seed, int count = 12) {
  return mixed_samples(count, seed, 261);  // the smallest vocabulary of device_spec
}

struct Policy : RandomModel {
  explicit Policy(const std::string& family, tensor::Device where = test_device())
      : Policy(model::device_spec(family, 0.08), where) {}
  Policy(const model::ModelSpec& spec_in, tensor::Device where)
      : RandomModel(spec_in, where, true) {}
  std::vector<float> all_weights() const {
    std::vector<float> values;
    for (const auto& info : store.infos()) {
      const std::vector<float> own = weight_values(info);
      values.insert(values.end(), own.begin(), own.end());
    }
    return values;
  }
};

TrainOptions options_of(int64_t max_tokens, const std::string& recompute = "none") {
  TrainOptions options = packed(max_tokens);
  options.recompute_granularity = recompute;
  return options;
}

class TrainerCuda : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (tensor::count_cuda_devices() == 0) GTEST_SKIP() << "no GPU";
    tensor::select_device(test_device());
  }
  Trainer trainer(Policy& policy, const TrainOptions& options) {
    return Trainer(policy.decoder, policy.store, ranks_, dist::groups_of_one(), options, {}, 0.9f,
                   policy.device);
  }
  dist::Collective ranks_;
};

// Checks determinism; recomputation changes no bit either.
TEST_P(TrainerCuda, TwoStepsGiveTheSameBitsEveryTime) {
  std::vector<float> expected, start;
  for (const std::string recompute : {"none", "none", "full"}) {
    Policy policy(GetParam());
    start = policy.all_weights();
    Trainer t = trainer(policy, options_of(100, recompute));
    for (uint64_t step = 0; step < 2; ++step) {
      const StepResult result = t.step(samples_of(20 + step), full_loss(), 1e-2);
      EXPECT_FALSE(result.skipped);
      EXPECT_GT(result.num_microbatches, 1);
    }
    const std::vector<float> weights = policy.all_weights();
    if (expected.empty()) expected = weights;
    EXPECT_EQ(first_difference(weights, expected), "") << recompute;
  }
  EXPECT_NE(first_difference(expected, start), "");
}

TEST_P(TrainerCuda, NothingIsAllocatedOnceWarm) {
  Policy policy(GetParam());
  Trainer t = trainer(policy, options_of(100));
  tensor::AllocationCounters after_second;
  for (int step = 1; step <= 5; ++step) {
    t.step(samples_of(20), full_loss(), 1e-3);
    const tensor::AllocationCounters now = tensor::allocation_counters(test_device());
    if (step == 2) after_second = now;
    if (step < 3) continue;
    EXPECT_EQ(now.num_allocations, after_second.num_allocations) << "step " << step;
    EXPECT_EQ(now.live_bytes, after_second.live_bytes) << "step " << step;
    EXPECT_EQ(now.peak_bytes, after_second.peak_bytes) << "step " << step;
  }
}

// Empty microbatches, and another order of forwards over two slots, change no bit.
TEST_P(TrainerCuda, EmptyMicrobatchesAndSlotsChangeNoBit) {
  using enum OperationKind;
  const std::vector<Operation> both = {
      {kForward, 0, 0}, {kForward, 1, 1}, {kBackward, 0, 0}, {kBackward, 1, 1}};
  for (const model::LayerKeep level : {model::LayerKeep::kAll, model::LayerKeep::kInputs}) {
    const auto run = [&](const std::vector<Operation>& operations, size_t num_slots,
                         const Bins& microbatches) {
      Policy policy(GetParam());
      return run_listed_step(policy, test_device(), samples_of(70, 4), operations, num_slots,
                             microbatches, level);
    };
    const ListedStep expected = run(list_operations(0, {}, 2), 1, {{0, 3}, {1}});
    const ListedStep padded = run(list_operations(0, {}, 3), 1, {{}, {0, 3}, {1}});
    const ListedStep in_two = run(both, 2, {{0, 3}, {1}});
    EXPECT_EQ(first_difference(padded.gradients, expected.gradients), "");
    EXPECT_EQ(first_difference(padded.metrics, expected.metrics), "");
    EXPECT_EQ(first_difference(in_two.gradients, expected.gradients), "");
    EXPECT_EQ(first_difference(in_two.metrics, expected.metrics), "");
  }
}

// Log-probs are equal to the last bit, and so are the first step's metrics of them.
TEST_P(TrainerCuda, LogProbsAreTheSameBitsForAnyPacking) {
  auto samples = samples_of(8);
  Policy policy(GetParam());
  const auto expected =
      trainer(policy, options_of(4096)).compute_log_probs(policy.decoder, policy.store, samples);
  for (const int64_t tokens : {1, 40, 100}) {
    const auto scores = trainer(policy, options_of(tokens))
                            .compute_log_probs(policy.decoder, policy.store, samples);
    for (size_t i = 0; i < scores.size(); ++i) {
      EXPECT_EQ(first_difference(scores[i].log_probs, expected[i].log_probs), "")
          << i << ", " << tokens;
      EXPECT_EQ(first_difference(scores[i].entropies, expected[i].entropies), "")
          << i << ", " << tokens;
    }
  }
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i].old_log_probs.clear();
    samples[i].rollout_log_probs = samples[i].ref_log_probs = expected[i].log_probs;
  }
  const StepResult r = trainer(policy, options_of(60)).step(samples, full_loss(), 0);
  EXPECT_EQ(r.metric(ops::LossMetric::kLogProbMismatches), 0);
  EXPECT_EQ(r.metric(ops::LossMetric::kLogProbMaxDiff), 0);
  EXPECT_EQ(r.metric(ops::LossMetric::kKlLoss), 0);
  EXPECT_EQ(r.metric(ops::LossMetric::kClipFraction), 0);
}

// The first step with a supervised loss, which has no cancellation in its value or gradients.
TEST_P(TrainerCuda, StepAgreesWithTheCpu) {
  StepLoss loss;
  loss.policy.kind = ops::LossKind::kSft;
  const model::ModelSpec spec = model::without_choices(model::device_spec(GetParam(), 0.08));
  Policy on_device(spec, test_device()), on_cpu(spec, {});
  const StepResult got = trainer(on_device, options_of(100)).step(samples_of(9), loss, 1e-3);
  const StepResult expected = trainer(on_cpu, options_of(100)).step(samples_of(9), loss, 1e-3);
  EXPECT_NEAR(got.metric(ops::LossMetric::kLoss) / expected.metric(ops::LossMetric::kLoss), 1,
              kBound);
  EXPECT_NEAR(got.gradient_norm / expected.gradient_norm, 1, kBound);
  EXPECT_EQ(got.metric(ops::LossMetric::kTokens), expected.metric(ops::LossMetric::kTokens));
  std::printf("%s: loss %.5f for %.5f, gradient norm %.5f for %.5f\n", GetParam().c_str(),
              got.metric(ops::LossMetric::kLoss), expected.metric(ops::LossMetric::kLoss),
              got.gradient_norm, expected.gradient_norm);
}

TEST_P(TrainerCuda, StateInHostMemoryGivesTheSameBits) {
  for (const char* dtype : {"float32", "bfloat16"}) {
    const auto weights_after = [&](bool in_host_memory) {
      Policy policy(GetParam());
      OptimizerOptions optimizer;
      optimizer.state_dtype = dtype;
      optimizer.optimizer_cpu_offload = in_host_memory;
      Trainer t(policy.decoder, policy.store, ranks_, dist::groups_of_one(), options_of(60),
                optimizer, 0.9f, policy.device);
      for (const uint64_t seed : {5, 6, 7}) t.step(samples_of(seed), full_loss(), 0.01);
      std::vector<float> weights = policy.all_weights();
      t.optimizer().publish_master();
      EXPECT_EQ(first_difference(policy.all_weights(), weights), "") << "published again";
      return weights;
    };
    EXPECT_EQ(first_difference(weights_after(true), weights_after(false)), "") << dtype;
  }
}

TEST_P(TrainerCuda, NanGradientSkipsTheStep) {
  auto bad = samples_of(13);
  for (auto& m : bad[4].loss_mask) m = 1;
  bad[4].advantages[0] = std::numeric_limits<float>::quiet_NaN();
  Policy policy(GetParam());
  const std::vector<float> before = policy.all_weights();
  Trainer t = trainer(policy, options_of(60));
  EXPECT_TRUE(t.step(bad, full_loss(), 0.01).skipped);
  EXPECT_EQ(first_difference(policy.all_weights(), before), "");
  EXPECT_FALSE(t.step(samples_of(14), full_loss(), 0.01).skipped);
  EXPECT_NE(first_difference(policy.all_weights(), before), "");
}

// Two MTP layers, where the second trains through the first: losses and gradients agree with the
// CPU, and everything else keeps its bits.
TEST_P(TrainerCuda, MtpLayersTrainAsOnTheCpuAndLeaveTheRestAlone) {
  model::ModelSpec spec = model::device_spec(GetParam(), 0.08);
  const std::string first = "layers." + std::to_string(spec.num_layers()) + ".";
  const std::string second = "layers." + std::to_string(spec.num_layers() + 1) + ".";
  model::LayerSpec layer = spec.layers.back();
  layer.attention = spec.layers.front().attention;  // has its own indexer, if any layer has
  spec.mtp.assign(2, {.layer = layer});
  const auto train = [&](bool trains_mtp, tensor::Device device, int64_t tokens) {
    for (model::MtpSpec& mtp : spec.mtp) mtp.is_trained = trains_mtp;
    Policy policy(spec, device);
    TrainOptions options = options_of(tokens);
    options.mtp_loss_scaling_factor = 1;
    StepResult result = trainer(policy, options).step(samples_of(9), full_loss(), 0);
    std::vector<float> trunk, mtp;
    for (const auto& info : policy.store.infos()) {
      std::vector<float> own(static_cast<size_t>(info.num_elements()));
      policy.store.read_gradients(info, 0, own.data(), info.num_elements());
      const bool is_mtp = info.name.starts_with(first) || info.name.starts_with(second);
      std::vector<float>& all = is_mtp ? mtp : trunk;
      all.insert(all.end(), own.begin(), own.end());
    }
    return std::tuple(result, trunk, mtp);
  };
  for (const int64_t tokens : {4096, 100}) {
    const auto [got, trunk, mtp] = train(true, test_device(), tokens);
    const auto [again, same_trunk, same_mtp] = train(true, test_device(), tokens);
    const auto [without, expected_trunk, zeros] = train(false, test_device(), tokens);
    const auto [on_cpu, cpu_trunk, expected_mtp] = train(true, {}, tokens);
    EXPECT_EQ(first_difference(trunk, expected_trunk), "");
    EXPECT_EQ(first_difference(mtp, same_mtp), "");
    EXPECT_NEAR(norm_of(mtp) / norm_of(expected_mtp), 1, kBound);
    ASSERT_EQ(got.mtp_losses.size(), 2u);
    EXPECT_EQ(got.mtp_losses, again.mtp_losses);
    for (size_t k = 0; k < 2; ++k)
      EXPECT_NEAR(got.mtp_losses[k] / on_cpu.mtp_losses[k], 1, kBound) << k;
    std::printf("%s: MTP losses %.5f, %.5f; gradient norm %.5f for %.5f\n", GetParam().c_str(),
                got.mtp_losses[0], got.mtp_losses[1], norm_of(mtp), norm_of(expected_mtp));
  }
}

// Expert loads count the same choices and move biases exactly, so packing has no effect.
class TrainerOfExpertsCuda : public TrainerCuda {};
TEST_P(TrainerOfExpertsCuda, LoadsAndBiasesDoNotDependOnPacking) {
  const auto train = [&](tensor::Device device, int64_t tokens, const std::string& recompute) {
    Policy policy(GetParam(), device);
    TrainOptions options = options_of(tokens, recompute);
    options.moe_router_bias_update_rate = 0.125;
    options.moe_aux_loss_coeff = 0.5;
    options.moe_z_loss_coeff = 0.25;
    StepResult result = trainer(policy, options).step(samples_of(9), full_loss(), 0);
    std::vector<float> biases;
    for (const auto& info : policy.store.infos()) {
      if (!info.moved_by_rule) continue;
      const std::vector<float> own = policy.weight_values(info);
      biases.insert(biases.end(), own.begin(), own.end());
    }
    return std::pair(result, biases);
  };
  const auto [expected, expected_biases] = train(test_device(), 4096, "none");
  ASSERT_FALSE(expected.routers.empty());
  for (const auto& [tokens, recompute] : {std::pair(4096, "full"), {100, "none"}, {1, "full"}}) {
    const auto [got, biases] = train(test_device(), tokens, recompute);
    EXPECT_EQ(first_difference(biases, expected_biases), "");
    EXPECT_NEAR(got.gradient_norm / expected.gradient_norm, 1, kBound);
    for (size_t i = 0; i < expected.routers.size(); ++i) {
      EXPECT_EQ(got.routers[i].tokens, expected.routers[i].tokens);
      EXPECT_EQ(got.routers[i].entropy, expected.routers[i].entropy);
      EXPECT_EQ(got.routers[i].aux_loss, expected.routers[i].aux_loss);
      EXPECT_EQ(got.routers[i].z_loss, expected.routers[i].z_loss);
    }
  }
  // Allowed difference: in f32 some tokens choose other experts.
  constexpr double kChoices = 0.05;
  const auto [on_cpu, cpu_biases] = train({}, 4096, "none");
  for (size_t i = 0; i < expected.routers.size(); ++i) {
    EXPECT_NEAR(expected.routers[i].aux_loss / on_cpu.routers[i].aux_loss, 1, kChoices);
    EXPECT_NEAR(expected.routers[i].z_loss / on_cpu.routers[i].z_loss, 1, kChoices);
    EXPECT_NEAR(expected.routers[i].entropy / on_cpu.routers[i].entropy, 1, kChoices);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TrainerCuda, testing::ValuesIn(model::device_families()),
                         [](const auto& parameter) { return parameter.param; });
INSTANTIATE_TEST_SUITE_P(Families, TrainerOfExpertsCuda,
                         testing::ValuesIn(model::device_expert_families()),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace slimexx::train
