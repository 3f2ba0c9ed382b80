#include "slimexx/ops/branch.h"

#include <gtest/gtest.h>

#include "ops/branch_cases.h"

namespace slimexx::ops::testing {
namespace {

TEST(Branch, RunsInTheOrderOfCallsOnTheCpu) {
  const Array x = filled(5, 0), step = filled(5, 1), y({5}), z({5}), sum({5});
  const BranchRound round{x, step, y, z, sum};
  tensor::Arena arena({}, 1 << 10, "test");
  for (int i = 1; i <= 3; ++i) {
    round.run(compute_context(arena));
    for (int64_t k = 0; k < 5; ++k) EXPECT_EQ(sum[k], 2.0f * static_cast<float>(i)) << k;
  }
}

TEST(Branch, HasTheMemoryThatItIsGiven) {
  tensor::Arena arena({}, 1 << 10, "test");
  const Context ctx = compute_context(arena);
  const Tensor memory = arena.allocate(DType::kU8, {128});
  Branch branch(ctx, memory);
  const Tensor taken = branch.context().arena.allocate(DType::kF32, {32});
  EXPECT_EQ(taken.raw(), memory.raw());
  EXPECT_DEATH(branch.context().arena.allocate(DType::kF32, {1}), "branch");
  branch.join();
}

// A planning context already reports the fault.
TEST(Branch, MayNotTakeMoreInPlanning) {
  tensor::Arena plan = tensor::Arena::for_planning({}, "test");
  const Context ctx = planning_context(plan);
  Branch branch(ctx, plan.allocate(DType::kU8, {128}));
  EXPECT_TRUE(branch.context().planning());
  branch.context().arena.allocate(DType::kF32, {33});
  EXPECT_DEATH(branch.join(), "a branch needs 192 bytes, but has 128");
}

}  // namespace
}  // namespace slimexx::ops::testing
