// Training on grids of ranks that share a GPU agrees with one rank on that GPU: log-probs and
// entropies bit for bit, gradients up to bf16 rounding. With several GPUs, the same over NCCL with
// one GPU per rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <ostream>

#include "model/random_model_cuda.h"
#include "slimexx/base/error.h"
#include "train/grids/grid_agreement.h"

namespace slimexx::train {
namespace {

// Pipeline and expert parallelism compute the same rows; only f32 sums change order. Some weights
// round to a neighbouring bf16 value.
constexpr GridBounds kSameRows{.weight = 1e-3};
// Tensor and context parallelism also split sums of bf16 gradients and round the parts. Allowed:
// twice the 1e-2 of bf16 itself, more for tensors that are small differences, and more after a step
// of Adam.
constexpr GridBounds kSplitSums{
    .loss = 1e-6, .norm = 5e-3, .later = 0, .gradients = 2.5e-2, .gradient = 2.5e-2, .weight = 0};

struct GridCase {
  const char* name;
  const char* family;
  int world_size;
  dist::GridSizes sizes;
  bool with_mtp = false;
  const char* recompute = "none";
  std::optional<double> planned_share = {};
  int64_t max_tokens = 60;
};
void PrintTo(const GridCase& c, std::ostream* out) { *out << c.name; }

GridRun device_run(const GridCase& c) {
  GridRun run{.random_of = model::device_spec_of_ranks(c.family, 4, 0.08),
              .device = model::test_device(),
              .world_size = c.world_size,
              .sizes = c.sizes,
              .options = packed(c.max_tokens / c.sizes.cp),
              .num_steps = 2};
  run.options.recompute_granularity = c.recompute;
  run.optimizer.adam_eps = 1e-5;  // keeps Adam from full steps on gradients that are pure rounding
  run.planned_share = c.planned_share;
  if (c.with_mtp) {
    run.random_of->mtp.assign(1, {.layer = run.random_of->layers.back()});
    run.options.enable_mtp_training = true;
    run.options.mtp_num_layers = 1;
  }
  return run;
}

// The same run on one rank, with the grid's number of leaves.
GridRun alone(const GridRun& run) {
  GridRun one = run;
  one.world_size = 1;
  one.sizes = {};
  one.leaves = run.sizes.tp;
  one.options.max_tokens_per_gpu *= run.sizes.cp;
  one.planned_share.reset();
  return one;
}

// NCCL sums gradients in another order than one rank. After the first step a few weights differ by
// one bf16 step, and later steps diverge. Returns the number of such weights.
int64_t count_rounded_apart(GridRun run, const std::vector<Sample>& samples) {
  run.num_steps = 1;
  const GridResult one = run_on_grid(alone(run), samples), many = run_on_grid(run, samples);
  int64_t apart = 0, all = 0;
  for (const auto& [name, weights] : one.weights) {
    const std::vector<float>& others = many.weights.at(name);
    for (size_t i = 0; i < weights.size(); ++i) {
      if (others[i] == weights[i]) continue;
      EXPECT_LE(std::abs(others[i] - weights[i]), 0x1p-7f * std::abs(weights[i]))
          << name << " " << i << ": " << others[i] << " and " << weights[i];
      ++apart;
    }
    all += std::ssize(weights);
  }
  EXPECT_LE(apart, all / 100000) << "of " << all;
  return apart;
}

class GridCuda : public testing::TestWithParam<GridCase> {
 protected:
  void SetUp() override {
    if (tensor::count_cuda_devices() == 0) GTEST_SKIP() << "no GPU";
  }
  void expect_agreement(const GridRun& run) {
    // Long samples have several key blocks, and chunk borders inside a block.
    const std::vector<Sample> samples = GetParam().max_tokens > 256
                                            ? samples_of_lengths({300, 131, 64, 5, 257, 2, 128}, 17)
                                            : mixed_samples(9, 11, 320);
    const GridResult one = run_on_grid(alone(run), samples);
    const GridResult many = run_on_grid(run, samples);
    const bool splits_sums = run.sizes.tp * run.sizes.cp * run.sizes.etp > 1;
    GridBounds bounds = splits_sums ? kSplitSums : kSameRows;
    if (run.has_device_each && !splits_sums && count_rounded_apart(run, samples) > 0)
      bounds.later = bounds.weight = 0;
    expect_same_training(many, one, bounds);
    if (many.gradients.size() != one.gradients.size()) return;
    double largest = 0;
    std::string of;
    for (const auto& [name, gradient] : one.gradients) {
      const double difference = relative_difference(many.gradients.at(name), gradient);
      if (difference > largest) of = name;
      largest = std::max(largest, difference);
    }
    std::printf("%-28s gradients within %.1e (%s), norm %.6g and %.6g, then %.6g and %.6g\n",
                GetParam().name, largest, of.c_str(), many.steps[0].gradient_norm,
                one.steps[0].gradient_norm, many.steps[1].gradient_norm,
                one.steps[1].gradient_norm);
  }
};

TEST_P(GridCuda, RanksOfOneDeviceTrainAsOne) { expect_agreement(device_run(GetParam())); }

TEST_P(GridCuda, RanksOfManyDevicesTrainAsOne) {
  if (tensor::count_cuda_devices() < GetParam().world_size) GTEST_SKIP() << "too few GPUs";
  GridRun run = device_run(GetParam());
  run.has_device_each = true;
  expect_agreement(run);
}

// A grid and one rank with the same leaves could share an error, so compare leaves with the unsplit
// product, up to rounding.
TEST(GridCudaLeaves, SayWhatTheWholeSays) {
  if (tensor::count_cuda_devices() == 0) GTEST_SKIP() << "no GPU";
  const std::vector<Sample> samples = mixed_samples(9, 11, 320);
  for (const char* family : {"qwen3", "glm4"}) {
    GridRun run = device_run({"leaves", family, 1, {}});
    run.num_steps = 0;
    const GridResult whole = run_on_grid(run, samples);
    run.leaves = 4;
    const GridResult leaves = run_on_grid(run, samples);
    for (size_t i = 0; i < samples.size(); ++i)
      for (size_t t = 0; t < whole.scores[i].log_probs.size(); ++t) {
        const TokenScores &a = leaves.scores[i], &e = whole.scores[i];
        EXPECT_NEAR(a.log_probs[t], e.log_probs[t], 0.1) << family << " " << i << " " << t;
        EXPECT_NEAR(a.entropies[t], e.entropies[t], 0.1) << family << " " << i << " " << t;
      }
  }
}

const GridCase kGrids[] = {
    // Four ranks are more than the key heads, so neighbours hold the same heads.
    {"tp2_qwen2", "qwen2", 2, {.tp = 2}},
    {"tp2_qwen3", "qwen3", 2, {.tp = 2}},
    {"tp4_qwen3", "qwen3", 4, {.tp = 4}},
    {"tp2_glm4", "glm4", 2, {.tp = 2}},
    {"tp4_glm4", "glm4", 4, {.tp = 4}},
    {"tp2_qwen3_moe", "qwen3_moe", 2, {.tp = 2}},
    {"tp4_glm4_moe", "glm4_moe", 4, {.tp = 4}},
    {"tp2_glm4_moe_lite", "glm4_moe_lite", 2, {.tp = 2}},
    {"tp4_glm4_moe_lite", "glm4_moe_lite", 4, {.tp = 4}},
    {"tp2_deepseek_v3", "deepseek_v3", 2, {.tp = 2}},
    {"tp4_deepseek_v3", "deepseek_v3", 4, {.tp = 4}},
    {"tp2_glm_moe_dsa", "glm_moe_dsa", 2, {.tp = 2}},
    {"cp2_long_glm_moe_dsa", "glm_moe_dsa", 2, {.cp = 2}, false, "none", {}, 456},
    {"tp2_mtp_glm4_moe", "glm4_moe", 2, {.tp = 2}, true},
    {"tp2_full_glm4_moe", "glm4_moe", 2, {.tp = 2}, false, "full"},
    {"tp4_no_rows_qwen3", "qwen3", 4, {.tp = 4}, false, "none", {}, 1},
    {"tp2_dp2_qwen3", "qwen3", 4, {.tp = 2}},
    // The first and last stage share the embedding.
    {"pp2_qwen3", "qwen3", 2, {.pp = 2}},
    {"pp2_qwen2", "qwen2", 2, {.pp = 2}},
    {"pp4_glm4", "glm4", 4, {.pp = 4}},
    {"pp2_dp2_qwen3", "qwen3", 4, {.pp = 2}},
    {"pp2_mtp_glm4_moe", "glm4_moe", 2, {.pp = 2}, true},
    {"pp2_deepseek_v3", "deepseek_v3", 2, {.pp = 2}},
    {"tp2_pp2_qwen3", "qwen3", 4, {.tp = 2, .pp = 2}},
    {"tp2_pp2_glm4_moe_lite", "glm4_moe_lite", 4, {.tp = 2, .pp = 2}},
    {"ep2_qwen3_moe", "qwen3_moe", 2, {.ep = 2}},
    {"ep4_qwen3_moe", "qwen3_moe", 4, {.ep = 4}},
    {"ep2_glm4_moe", "glm4_moe", 2, {.ep = 2}},
    {"ep4_glm4_moe_lite", "glm4_moe_lite", 4, {.ep = 4}},
    {"ep2_dp2_deepseek_v3", "deepseek_v3", 4, {.ep = 2}},
    {"ep2_full_glm4_moe", "glm4_moe", 2, {.ep = 2}, false, "full"},
    {"ep4_planned_glm4_moe", "glm4_moe", 4, {.ep = 4}, false, "auto", 0},
    {"etp2_qwen3_moe", "qwen3_moe", 2, {.etp = 2}},
    {"tp2_etp2_glm4_moe", "glm4_moe", 2, {.tp = 2, .etp = 2}},
    {"ep2_etp2_glm4_moe_lite", "glm4_moe_lite", 4, {.ep = 2, .etp = 2}},
    {"tp2_ep2_etp2_glm_moe_dsa", "glm_moe_dsa", 4, {.tp = 2, .ep = 2, .etp = 2}},
    {"etp4_full_deepseek_v3", "deepseek_v3", 4, {.etp = 4}, false, "full"},
    {"ep2_etp2_planned_qwen3_moe", "qwen3_moe", 4, {.ep = 2, .etp = 2}, false, "auto", 0},
    {"tp2_ep2_qwen3_moe", "qwen3_moe", 2, {.tp = 2, .ep = 2}},
    {"tp2_ep4_glm4_moe", "glm4_moe", 4, {.tp = 2, .ep = 4}},
    {"pp2_ep2_glm4_moe", "glm4_moe", 4, {.pp = 2, .ep = 2}},
    {"cp2_qwen3", "qwen3", 2, {.cp = 2}},
    {"cp2_long_qwen3", "qwen3", 2, {.cp = 2}, false, "none", {}, 456},
    {"cp4_long_qwen2", "qwen2", 4, {.cp = 4}, false, "none", {}, 456},
    {"cp2_long_glm4", "glm4", 2, {.cp = 2}, false, "full", {}, 456},
    {"cp3_long_glm4_moe_lite", "glm4_moe_lite", 3, {.cp = 3}, false, "none", {}, 456},
    {"cp2_long_deepseek_v3", "deepseek_v3", 2, {.cp = 2}, false, "none", {}, 456},
    {"cp4_few_tokens_qwen3", "qwen3", 4, {.cp = 4}, false, "none", {}, 4},
    {"cp2_mtp_glm4_moe", "glm4_moe", 2, {.cp = 2}, true},
    {"cp2_planned_qwen3", "qwen3", 2, {.cp = 2}, false, "auto", 0, 456},
    {"tp2_cp2_qwen3", "qwen3", 4, {.tp = 2, .cp = 2}},
    {"tp2_cp2_long_glm4_moe_lite", "glm4_moe_lite", 4, {.tp = 2, .cp = 2}, false, "none", {}, 456},
    {"cp2_pp2_glm4", "glm4", 4, {.cp = 2, .pp = 2}},
    {"cp2_ep4_glm4_moe", "glm4_moe", 4, {.cp = 2, .ep = 4}},
    {"tp2_planned_glm4", "glm4", 2, {.tp = 2}, false, "auto", 0.5},
    {"tp2_pp2_ep4_glm4_moe_lite", "glm4_moe_lite", 8, {.tp = 2, .pp = 2, .ep = 4}},
};

INSTANTIATE_TEST_SUITE_P(Grids, GridCuda, testing::ValuesIn(kGrids),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

}  // namespace
}  // namespace slimexx::train
