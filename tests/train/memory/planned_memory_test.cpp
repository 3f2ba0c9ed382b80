// Tests activations in planned memory: its size decides what layers keep, and changes no bit.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "model/random_model.h"
#include "slimexx/base/error.h"
#include "slimexx/base/philox.h"
#include "slimexx/tensor/planning.h"
#include "train/grids/grid_run.h"
#include "train/memory/planned_rank.h"
#include "train/tiny_policy.h"

namespace slimexx::train {
namespace {

constexpr int64_t kLongest = 60, kNumSamples = 12;

std::vector<Sample> samples() { return mixed_samples(kNumSamples, 60); }

// All tokens in one microbatch, the largest possible.
int64_t num_tokens() {
  int64_t sum = 0;
  for (const Sample& sample : samples()) sum += std::ssize(sample.tokens);
  return sum;
}

struct Outcome {
  std::vector<float> weights;
  model::KeepPlan keep;
};

// Trains three steps with activations in `bytes` (0: a growing arena).
Outcome train(const std::string& model, int64_t bytes, const std::string& recompute) {
  dist::Collective communicator;
  TinyPolicy policy(model);
  TrainOptions options = packed(num_tokens());
  options.recompute_granularity = recompute;
  Trainer trainer = policy.trainer(communicator, options);
  const tensor::Buffer memory({}, bytes, "activations");
  if (bytes > 0) trainer.memory().borrow(memory.view(tensor::DType::kU8, {bytes}));
  const int64_t buffers = tensor::allocation_counters({}).num_allocations;
  model::KeepPlan keep;
  for (int step = 0; step < 3; ++step) keep = trainer.step(samples(), full_loss(), 0.01).keep;
  if (bytes > 0) {
    EXPECT_EQ(tensor::allocation_counters({}).num_allocations, buffers);
    EXPECT_EQ(trainer.memory().capacity_bytes(), bytes);
  }
  return {floats_of(flat_weights(policy.store)), keep};
}

ActivationBytes plan(const std::string& model, const std::string& recompute) {
  dist::Collective communicator;
  TinyPolicy policy(model);
  TrainOptions options = packed(num_tokens());
  options.recompute_granularity = recompute;
  return policy.trainer(communicator, options).plans().plan_activations(kLongest, kNumSamples);
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

// A run that uses the planned recompute granularity never exceeds the plan.
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

TEST_P(PlannedMemory, ASampleThatDoesNotFitAloneIsRefused) {
  const ActivationBytes bytes = plan(GetParam(), "auto");
  try {
    train(GetParam(), bytes.least / 100, "auto");
    FAIL() << "a hundredth of what was planned was enough";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kEnvironment);
    EXPECT_NE(std::string(error.what()).find("one sample of"), std::string::npos) << error.what();
  }
}

model::ModelSpec planned_spec(const char* family, int64_t num_layers) {
  return model::random_spec(family,
                            {.vocab_size = 320,
                             .hidden_size = 128,
                             .intermediate_size = 208,
                             .head_dim = 64,
                             .max_positions = 512,
                             .num_layers = num_layers},
                            0.1);
}

using BytesByName = std::map<std::string, int64_t>;

constexpr const char* kActivations = "activations of microbatches";

// Bytes that all ranks hold, with their maximum activations.
BytesByName plan_ranks(const model::ModelSpec& spec, const dist::GridShape& shape,
                       const TrainOptions& options) {
  BytesByName bytes;
  for (int rank = 0; rank < shape.world_size(); ++rank) {
    const tensor::PlanningScope scope;
    const PlannedRank planned(spec, shape, rank, {}, options);
    for (const tensor::NamedBytes& named : tensor::list_allocations({}))
      bytes[named.what_for] += named.bytes;
    bytes[kActivations] += planned.trainer().plans().plan_activations(kLongest, kNumSamples).most;
  }
  return bytes;
}

BytesByName live_bytes() {
  BytesByName bytes;
  for (const tensor::NamedBytes& named : tensor::list_allocations({}))
    bytes[named.what_for] += named.bytes;
  return bytes;
}

// A trainer's buffers never shrink, so their size after the steps is the most they took.
TEST(PlannedStages, GridsTakeWhatTheirPlansSay) {
  TrainOptions options = packed(150);
  const std::vector<Sample> samples =
      samples_of_lengths(std::vector<int64_t>(static_cast<size_t>(kNumSamples), kLongest), 1);
  struct Grid {
    const char* family;
    int world_size;
    dist::GridSizes sizes;
    const char* schedule;
  };
  for (const Grid& grid :
       {Grid{"qwen3", 4, {.tp = 2, .pp = 2}, "1f1b"}, Grid{"qwen3", 4, {.pp = 4}, "zb_h1"},
        Grid{"qwen3", 4, {.tp = 2, .cp = 2}, "1f1b"},
        Grid{"qwen3_moe", 8, {.tp = 2, .pp = 2, .ep = 4}, "1f1b"},
        Grid{"qwen3_moe", 4, {.cp = 2, .pp = 2, .ep = 2}, "zb_h1"}}) {
    const model::ModelSpec spec = planned_spec(grid.family, 4);
    SCOPED_TRACE(std::string(grid.family) + " on " + std::to_string(grid.world_size));
    options.pipeline_schedule = grid.schedule;
    BytesByName planned = plan_ranks(spec, dist::GridShape(grid.world_size, grid.sizes), options);
    BytesByName taken;
    const BytesByName before = live_bytes();
    GridRun run{.random_of = spec,
                .world_size = grid.world_size,
                .sizes = grid.sizes,
                .options = options,
                .num_steps = 2};
    run.after_steps = [&](dist::Collective& host) {
      host.barrier();
      if (host.rank() == 0) taken = live_bytes();
      host.barrier();
    };
    run_on_grid(run, samples);
    for (const auto& [name, bytes] : before) taken[name] -= bytes;
    const int64_t planned_activations = std::exchange(planned[kActivations], 0);
    const int64_t activations = std::exchange(taken[kActivations], 0);
    EXPECT_LE(activations, planned_activations);
    EXPECT_GT(activations, planned_activations / 2);
    std::erase_if(taken, [](const auto& named) { return named.second == 0; });
    std::erase_if(planned, [](const auto& named) { return named.second == 0; });
    EXPECT_EQ(taken, planned);
  }
}

// Stage s of 4 has 4 - s microbatches in flight. The two middle stages differ only in that.
TEST(PlannedStages, AnotherMicrobatchInFlightTakesWhatItKeeps) {
  const tensor::PlanningScope scope;
  const dist::GridShape shape(8, {.pp = 4, .ep = 2});
  for (const char* family : {"qwen3", "qwen3_moe"}) {
    for (const char* granularity : {"none", "full"}) {
      TrainOptions options = packed(150);
      options.recompute_granularity = granularity;
      std::vector<ActivationBytes> planned;
      for (const int rank : {2, 4})
        planned.push_back(PlannedRank(planned_spec(family, 4), shape, rank, {}, options)
                              .trainer()
                              .plans()
                              .plan_activations(kLongest, kNumSamples));
      EXPECT_EQ(planned[0].in_flight, 3);
      EXPECT_EQ(planned[1].in_flight, 2);
      EXPECT_EQ(planned[0].kept, planned[1].kept);
      EXPECT_EQ(planned[0].scratch, planned[1].scratch);
      EXPECT_GT(planned[0].kept, 0);
      EXPECT_GT(planned[0].scratch, 0);
      EXPECT_NEAR(planned[0].least - planned[1].least, planned[0].kept, 255) << family;
      EXPECT_NEAR(planned[0].least, planned[0].scratch + 3 * planned[0].kept, 4 * 255) << family;
    }
  }
}

// Tests the CPU, and a device without the memory that its kernels allocate themselves.
TEST(PlannedStages, NoMicrobatchTakesMoreThanThePlan) {
  constexpr int64_t kTokens = 150;
  const tensor::PlanningScope scope;
  const dist::GridShape shape(4, {.tp = 2, .pp = 2});
  for (const tensor::Device device :
       {tensor::Device{}, tensor::Device{tensor::DeviceType::kCuda, 0}}) {
    for (const char* family : {"qwen3", "glm4", "qwen3_moe"}) {
      const model::ModelSpec spec = planned_spec(family, 2);
      for (const int rank : {0, 2}) {
        SCOPED_TRACE(family + (" on " + tensor::to_string(device)) + ", rank " +
                     std::to_string(rank));
        const PlannedRank planned_rank(spec, shape, rank, device, packed(kTokens));
        const Trainer& trainer = planned_rank.trainer();
        PhiloxStream random(7, 3);
        for (const int64_t longest : {40, 74, 104}) {
          const ActivationBytes planned = trainer.plans().plan_activations(longest, kNumSamples);
          EXPECT_LE(planned.least, planned.most);
          for (int i = 0; i < 40; ++i) {
            const auto microbatch = draw_microbatch(
                random, {.num_tokens = kTokens, .longest = longest, .num_samples = kNumSamples});
            for (const auto& [keep, bytes] : {std::pair{model::LayerKeep::kInputs, planned.least},
                                              {model::LayerKeep::kAll, planned.most}})
              EXPECT_LE(trainer.plans().plan_microbatch(microbatch, {.level = keep}), bytes)
                  << "longest " << longest << ", microbatch " << i;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, PlannedMemory, testing::Values("qwen3_tied_mqa", "glm4_no_bias"),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace slimexx::train
