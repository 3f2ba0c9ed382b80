// Tests how a GPU's memory is divided, with numbers worked out by hand.
#include "rl/plan/memory_plan.h"

#include <gtest/gtest.h>

#include "slimexx/base/error.h"

namespace slimexx::rl {
namespace {

constexpr int64_t kGib = int64_t{1} << 30;

// 90 % of 140 GiB may be used: 126 GiB. 72 are in use, the engine takes 2 more, so 52 are left.
MemoryBudget typical() {
  return {.device_bytes = 140 * kGib,
          .mem_fraction = 0.9,
          .used_bytes = 72 * kGib,
          .live = {{"optimizer state", 45 * kGib}, {"gradients", 15 * kGib}, {"weights", 8 * kGib}},
          .workspace_bytes = 2 * kGib,
          .min_cache_bytes = 1 * kGib,
          .max_cache_bytes = 700 * kGib,
          .activations = {.least = 12 * kGib, .most = 33 * kGib}};
}

std::string refusal(const MemoryBudget& budget) {
  try {
    plan_memory(budget);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kEnvironment);
    EXPECT_EQ(error.where(), "rollout.mem_fraction_static");
    return error.what();
  }
  return "";
}

TEST(MemoryPlan, KeysAndValuesGetAllThatIsLeft) {
  const MemoryPlan plan = plan_memory(typical());
  EXPECT_EQ(plan.share_bytes(), 126 * kGib);
  EXPECT_EQ(plan.pool_bytes, 52 * kGib);
  EXPECT_EQ(plan.cache_bytes, 52 * kGib);
}

TEST(MemoryPlan, ASmallModelTakesWhatServesIt) {
  MemoryBudget budget = typical();
  budget.max_cache_bytes = 5 * kGib;
  MemoryPlan plan = plan_memory(budget);
  EXPECT_EQ(plan.pool_bytes, 33 * kGib);
  EXPECT_EQ(plan.cache_bytes, 5 * kGib);
  budget.activations = {.least = 1 * kGib, .most = 3 * kGib};
  EXPECT_EQ(plan_memory(budget).pool_bytes, 5 * kGib);
}

TEST(MemoryPlan, AGivenCacheIsKeptAndActivationsTakeWhatElseThereIs) {
  MemoryBudget budget = typical();
  budget.cache_is_given = true;
  budget.max_cache_bytes = 20 * kGib;
  const MemoryPlan plan = plan_memory(budget);
  EXPECT_EQ(plan.cache_bytes, 20 * kGib);
  EXPECT_EQ(plan.pool_bytes, 33 * kGib);
  budget.max_cache_bytes = 53 * kGib;
  EXPECT_NE(refusal(budget).find("rollout.kv_cache_gib"), std::string::npos) << refusal(budget);
}

TEST(MemoryPlan, WithoutAnEngineActivationsHaveThePool) {
  MemoryBudget budget = typical();
  budget.workspace_bytes = budget.min_cache_bytes = budget.max_cache_bytes = 0;
  EXPECT_EQ(plan_memory(budget).pool_bytes, 33 * kGib);
  budget.has_unknown_samples = true;
  EXPECT_EQ(plan_memory(budget).pool_bytes, 54 * kGib);
}

TEST(MemoryPlan, ARankThatOnlyGeneratesHasNoActivations) {
  MemoryBudget budget = typical();
  budget.used_bytes = 9 * kGib;
  budget.activations = {};
  const MemoryPlan plan = plan_memory(budget);
  EXPECT_EQ(plan.pool_bytes, 115 * kGib);
  EXPECT_EQ(plan.cache_bytes, 115 * kGib);
  const std::string table = format_memory(plan);
  EXPECT_EQ(table.find("activations"), std::string::npos) << table;
  EXPECT_NE(table.find("115.0 GiB  KV cache\n"), std::string::npos) << table;
}

TEST(MemoryPlan, TooLittleIsRefusedWithTheTable) {
  MemoryBudget budget = typical();
  budget.activations.least = 53 * kGib;
  EXPECT_NE(refusal(budget).find("train.max_tokens_per_gpu"), std::string::npos);
  EXPECT_NE(refusal(budget).find("optimizer state"), std::string::npos);
  budget = typical();
  budget.min_cache_bytes = 53 * kGib;
  EXPECT_NE(refusal(budget).find("the KV cache of one sequence"), std::string::npos);
  budget = typical();
  budget.used_bytes = 139 * kGib;  // another process uses the device
  EXPECT_NE(refusal(budget).find("0 B"), std::string::npos) << refusal(budget);
}

}  // namespace
}  // namespace slimexx::rl
