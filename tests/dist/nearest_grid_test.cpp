#include "slimexx/dist/nearest_grid.h"

#include <gtest/gtest.h>

#include "slimexx/base/error.h"

namespace slimexx::dist {
namespace {

// Formats the advice as "key: hint".
std::string advice_text(int world_size, const GridSizes& sizes, const GridRule& rule = {}) {
  const GridAdvice advice = advise_grid(world_size, sizes, rule);
  return advice.key + ": " + advice.hint;
}

TEST(NearestGrid, NamesTheSizeThatIsNearest) {
  EXPECT_EQ(advice_text(6, {.tp = 4, .etp = 4}),
            "parallel.tensor_model_parallel_size: set it to 3 or 6, or use 4 or 8 ranks");
  EXPECT_EQ(advice_text(8, {.tp = 2, .pp = 3, .etp = 2}),
            "parallel.pipeline_model_parallel_size: set it to 2 or 4, or use 6 or 12 ranks");
  EXPECT_EQ(advice_text(4, {.tp = 8, .etp = 8}),
            "parallel.tensor_model_parallel_size: set it to 4, or use 8 ranks");
  EXPECT_EQ(advice_text(8, {.pp = 2, .ep = 8}),
            "parallel.expert_model_parallel_size: set it to 4, or use 16 ranks");
  EXPECT_EQ(advice_text(6, {.ep = 2, .etp = 2}),
            "parallel.expert_tensor_parallel_size: set it to 1 or 3, or use 4 or 8 ranks");
  EXPECT_EQ(advice_text(1, {.ep = 4}),
            "parallel.expert_model_parallel_size: set it to 1, or use 4 ranks");
}

TEST(NearestGrid, NamesSeveralSizesWhereOneIsNotEnough) {
  EXPECT_EQ(advice_text(8, {.tp = 3, .cp = 3, .etp = 1}),
            "parallel.context_parallel_size: set parallel.context_parallel_size to 4 and "
            "parallel.tensor_model_parallel_size to 2, or use 9 ranks");
  // No number of ranks is suggested if it would be this large.
  EXPECT_EQ(advice_text(2, {.tp = 1 << 20, .cp = 1 << 20, .pp = 1 << 20, .etp = 1}),
            "parallel.pipeline_model_parallel_size: set parallel.pipeline_model_parallel_size to 2 "
            "and parallel.context_parallel_size to 1 and parallel.tensor_model_parallel_size to 1");
}

TEST(NearestGrid, TheRuleHolds) {
  const auto rule = [](const GridSizes& s) { return 8 % s.tp == 0 && 8 % s.ep == 0; };
  EXPECT_EQ(advice_text(6, {.ep = 3}, rule), "parallel.expert_model_parallel_size: set it to 2");
  EXPECT_EQ(advice_text(3, {.tp = 3, .etp = 3}, rule),
            "parallel.tensor_model_parallel_size: set it to 1");
  // No sizes satisfy the rule, so it is ignored.
  EXPECT_EQ(advice_text(6, {.tp = 4, .etp = 4}, [](const GridSizes&) { return false; }),
            "parallel.tensor_model_parallel_size: set it to 3 or 6, or use 4 or 8 ranks");
}

// Suggested sizes are valid: tries all sizes up to 6 on worlds up to 12.
TEST(NearestGrid, WhatIsNamedDivides) {
  constexpr int kMost = 6, kMostRanks = 12;
  for (int n = 1; n <= kMostRanks; ++n)
    for (int code = 0; code < kMost * kMost * kMost * kMost * kMost; ++code) {
      int rest = code;
      const auto next = [&] {
        const int value = rest % kMost + 1;
        rest /= kMost;
        return value;
      };
      GridSizes sizes;
      for (int* size : {&sizes.tp, &sizes.cp, &sizes.pp, &sizes.ep, &sizes.etp}) *size = next();
      const auto [hint, key] = advise_grid(n, sizes);
      const std::string prefix = "set it to ";
      if (!hint.starts_with(prefix)) continue;
      const bool follows = sizes.tp == sizes.etp;
      const int value = std::stoi(hint.substr(prefix.size()));
      if (key == "parallel.tensor_model_parallel_size") sizes.tp = value;
      if (key == "parallel.tensor_model_parallel_size" && follows) sizes.etp = value;
      if (key == "parallel.context_parallel_size") sizes.cp = value;
      if (key == "parallel.pipeline_model_parallel_size") sizes.pp = value;
      if (key == "parallel.expert_model_parallel_size") sizes.ep = value;
      if (key == "parallel.expert_tensor_parallel_size") sizes.etp = value;
      EXPECT_NO_THROW(GridShape(n, sizes)) << n << " ranks: " << key << ": " << hint;
    }
}

}  // namespace
}  // namespace slimexx::dist
