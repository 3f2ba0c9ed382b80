// Training steps on the device: the same bits every time, no memory taken once warm, log-probs that
// do not depend on packing.
#include <gtest/gtest.h>
#include <cstdio>

#include "model/random_model_cuda.h"
#include "slimexx/ops/policy_loss.h"
#include "train/listed_step.h"
#include "train/tiny_policy.h"

namespace slimexx::train {
namespace {

using model::RandomModel;
using model::test_device;

// Of the loss and the gradients' norm: bf16 activations against f32 ones.
constexpr double kBound = 5e-3;

std::vector<Sample> samples_of(uint64_t seed, int count = 12) {
  return mixed_samples(count, seed, 261);  // the smallest vocabulary of device_spec
}

struct Policy : RandomModel {
  explicit Policy(const std::string& family, tensor::Device where = test_device())
      : RandomModel(model::device_spec(family, 0.08), where, true) {}
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

// E3, and recomputation, which changes no bit either.
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
    const ListedStep expected = run(list_operations(0, 1, 2), 1, {{0, 3}, {1}});
    const ListedStep padded = run(list_operations(0, 1, 3), 1, {{}, {0, 3}, {1}});
    const ListedStep in_two = run(both, 2, {{0, 3}, {1}});
    EXPECT_EQ(first_difference(padded.gradients, expected.gradients), "");
    EXPECT_EQ(first_difference(padded.metrics, expected.metrics), "");
    EXPECT_EQ(first_difference(in_two.gradients, expected.gradients), "");
    EXPECT_EQ(first_difference(in_two.metrics, expected.metrics), "");
  }
}

// E2: log-probs to the last bit, and what the first step then reports of them.
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

// The first step of a supervised loss, whose value and gradients have no cancellation.
TEST_P(TrainerCuda, StepAgreesWithTheCpu) {
  StepLoss loss;
  loss.policy.kind = ops::LossKind::kSft;
  Policy on_device(GetParam()), on_cpu(GetParam(), {});
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

INSTANTIATE_TEST_SUITE_P(Families, TrainerCuda, testing::ValuesIn(model::device_families()),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace slimexx::train
