// Activations in memory that was planned: it decides what layers keep, and changes no bit.
#include <gtest/gtest.h>

#include <string>

#include "slimexx/base/error.h"
#include "train/tiny_policy.h"

namespace slimexx::train {
namespace {

constexpr int64_t kLongest = 60, kNumSamples = 12;

std::vector<Sample> samples() { return mixed_samples(kNumSamples, 60); }

// One microbatch of all tokens: the largest that can be.
int64_t num_tokens() {
  int64_t sum = 0;
  for (const Sample& sample : samples()) sum += std::ssize(sample.tokens);
  return sum;
}

struct Outcome {
  std::vector<float> weights;
  model::KeepPlan keep;
};

// Three steps, with the activations in `bytes` (0: an arena that grows).
Outcome train(const std::string& model, int64_t bytes, const std::string& recompute) {
  dist::Collective communicator;
  TinyPolicy policy(model);
  TrainOptions options = packed(num_tokens());
  options.recompute_granularity = recompute;
  Trainer trainer = policy.trainer(communicator, options);
  const tensor::Buffer memory({}, bytes, "activations");
  if (bytes > 0) trainer.borrow_memory(memory.view(tensor::DType::kU8, {bytes}));
  const int64_t buffers = tensor::allocation_counters({}).num_allocations;
  for (int step = 0; step < 3; ++step) trainer.step(samples(), full_loss(), 0.01);
  if (bytes > 0) {
    EXPECT_EQ(tensor::allocation_counters({}).num_allocations, buffers);
    EXPECT_EQ(trainer.memory_bytes(), bytes);
  }
  return {floats_of(policy.store.flat_weights()), trainer.last_keep()};
}

ActivationBytes plan(const std::string& model, const std::string& recompute) {
  dist::Collective communicator;
  TinyPolicy policy(model);
  TrainOptions options = packed(num_tokens());
  options.recompute_granularity = recompute;
  return policy.trainer(communicator, options).plan_activations(kLongest, kNumSamples);
}

class PlannedMemory : public testing::TestWithParam<std::string> {};

TEST_P(PlannedMemory, DecidesWhatIsKeptAndChangesNoBit) {
  const ActivationBytes bytes = plan(GetParam(), "auto");
  ASSERT_LT(bytes.least, bytes.most);
  const Outcome grown = train(GetParam(), 0, "none");
  int levels = 0;
  model::KeepPlan last{.level = model::LayerKeep::kInputs};
  for (int eighth = 0; eighth <= 8; ++eighth) {
    const int64_t own = bytes.least + (bytes.most - bytes.least) * eighth / 8;
    const Outcome planned = train(GetParam(), own, "auto");
    EXPECT_EQ(first_difference(planned.weights, grown.weights), "") << own << " bytes";
    EXPECT_GE(planned.keep.level, last.level) << own << " bytes";
    levels += !(planned.keep == last);
    last = planned.keep;
  }
  EXPECT_GE(levels, 2);
}

// A run that was planned as it runs never needs more than the plan says.
TEST_P(PlannedMemory, FixedGranularityFitsItsPlan) {
  for (const std::string recompute : {"none", "full"}) {
    const ActivationBytes bytes = plan(GetParam(), recompute);
    EXPECT_EQ(bytes.least, bytes.most) << recompute;
    const Outcome grown = train(GetParam(), 0, recompute);
    EXPECT_EQ(first_difference(train(GetParam(), bytes.most, recompute).weights, grown.weights),
              "");
  }
  EXPECT_LT(plan(GetParam(), "full").most, plan(GetParam(), "none").most);
  EXPECT_EQ(plan(GetParam(), "full").most, plan(GetParam(), "auto").least);
  EXPECT_EQ(plan(GetParam(), "none").most, plan(GetParam(), "auto").most);
}

TEST_P(PlannedMemory, TooLittleIsRefusedWithTheKeyToTurn) {
  const ActivationBytes bytes = plan(GetParam(), "auto");
  try {
    train(GetParam(), bytes.least / 8, "auto");
    FAIL() << "an eighth of what was planned was enough";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kEnvironment);
    EXPECT_NE(std::string(error.what()).find("max_tokens_per_gpu"), std::string::npos)
        << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Families, PlannedMemory, testing::Values("qwen3_tied_mqa", "glm4_no_bias"),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace slimexx::train
