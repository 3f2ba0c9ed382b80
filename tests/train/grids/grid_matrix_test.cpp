// Compares random legal grids of every family, with MTP layers where it has them, with one rank.
// scripts/parity.sh runs more: SLX_GRIDS sets the number, SLX_GRID_SEED the seed.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "train/grids/grid_agreement.h"

namespace slimexx::train {
namespace {

const std::vector<std::string> kMatrixFamilies = {
    "qwen3", "glm4", "qwen3_moe", "glm4_moe", "glm4_moe_lite", "deepseek_v3", "glm_moe_dsa"};

int64_t read_number(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoll(text, nullptr, 10) : otherwise;
}

bool has_experts(const std::string& family) { return family != "qwen3" && family != "glm4"; }
bool has_mtp(const std::string& family) { return has_experts(family) && family != "qwen3_moe"; }

struct MatrixCase {
  std::string family;
  int ranks = 1;
  dist::GridSizes sizes = {};
  bool is_interleaved = false;  // one layer per stage
  std::string text() const {
    return family + " on " + std::to_string(ranks) + " ranks: tp " + std::to_string(sizes.tp) +
           " cp " + std::to_string(sizes.cp) + " pp " + std::to_string(sizes.pp) +
           (is_interleaved ? " interleaved" : "") + " ep " + std::to_string(sizes.ep) + " etp " +
           std::to_string(sizes.etp);
  }
};

// Whether the grid divides the ranks and the model (8 heads, 4 layers, 8 experts of 16 columns).
// With sparse attention a stage must begin at a layer that selects keys, which allows two stages.
bool is_legal(const MatrixCase& c) {
  const dist::GridSizes& s = c.sizes;
  if (c.ranks % (s.tp * s.cp * s.pp) != 0 || c.ranks % (s.ep * s.etp * s.pp) != 0) return false;
  if (8 % s.tp != 0 || 4 % s.pp != 0 || 8 % s.ep != 0) return false;
  return c.family != "glm_moe_dsa" || (s.pp <= 2 && !c.is_interleaved);
}

MatrixCase draw_case(PhiloxStream& random) {
  const auto draw = [&](const std::vector<int>& of) { return of[random.next_below(of.size())]; };
  for (;;) {
    MatrixCase c{.family = kMatrixFamilies[random.next_below(kMatrixFamilies.size())],
                 .ranks = draw({2, 3, 4, 6, 8, 8, 8})};
    c.sizes = {.tp = draw({1, 2, 4}), .cp = draw({1, 2, 3}), .pp = draw({1, 2, 4})};
    if (has_experts(c.family)) {
      c.sizes.ep = draw({1, 2, 4, 8});
      c.sizes.etp = draw({1, 2, 4});
    }
    c.is_interleaved = c.sizes.pp == 2 && draw({0, 1}) == 1;
    if (is_legal(c)) return c;
  }
}

GridRun matrix_run(const MatrixCase& c) {
  GridRun run{.folder = test_data_path("golden/oracle/") + c.family,
              .world_size = c.ranks,
              .sizes = c.sizes,
              .leaves = c.sizes.tp,
              .options = packed(48),
              .num_steps = 3};
  if (c.is_interleaved) run.split.layers_per_virtual_stage = 1;
  run.optimizer.adam_eps = 1e-5;  // keeps Adam from full steps on gradients that are pure rounding
  run.options.enable_mtp_training = has_mtp(c.family);
  run.options.mtp_num_layers = has_mtp(c.family) ? 1 : 0;
  return run;
}

TEST(GridMatrix, RandomGridsTrainAsOneRank) {
  const auto seed = static_cast<uint64_t>(read_number("SLX_GRID_SEED", 1));
  PhiloxStream random(seed, 9);
  const std::vector<Sample> samples = mixed_samples(7, 23, 320);
  std::map<std::pair<std::string, int>, GridResult> of_one_rank;  // key: family, leaves
  for (int64_t i = 0; i < read_number("SLX_GRIDS", 5); ++i) {
    const MatrixCase c = draw_case(random);
    SCOPED_TRACE(c.text() + ", seed " + std::to_string(seed));
    GridResult& one = of_one_rank[{c.family, c.sizes.tp}];
    if (one.steps.empty()) {
      GridRun alone = matrix_run(c);
      alone.world_size = 1;
      alone.sizes = {};
      alone.split = {};
      one = run_on_grid(alone, samples);
    }
    const GridResult on_grid = run_on_grid(matrix_run(c), samples);
    expect_same_training(on_grid, one);
    double largest = 0;
    std::string of;
    for (const auto& [name, gradient] : one.gradients) {
      const double difference = relative_difference(on_grid.gradients.at(name), gradient);
      if (difference > largest) of = name;
      largest = std::max(largest, difference);
    }
    std::printf("%-74s gradients within %.1e, %.1e of %s, norm %.9g and %.9g%s\n", c.text().c_str(),
                relative_difference(on_grid.gradients, one.gradients), largest, of.c_str(),
                on_grid.steps[0].gradient_norm, one.steps[0].gradient_norm,
                HasFailure() ? "  FAILED" : "");
  }
}

}  // namespace
}  // namespace slimexx::train
