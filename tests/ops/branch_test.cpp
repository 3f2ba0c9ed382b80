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

// Its memory would be given back, and taken by the other queue, while it still runs.
TEST(Branch, MayNotTakeMemory) {
  tensor::Arena arena({}, 1 << 10, "test");
  const Context ctx = compute_context(arena);
  Branch branch(ctx);
  branch.context().arena.allocate(DType::kF32, {1});
  EXPECT_DEATH(branch.join(ctx), "a branch took");
}

TEST(Branch, LaunchesNothingInPlanning) {
  tensor::Arena plan = tensor::Arena::for_planning({}, "test");
  const Context ctx = planning_context(plan);
  Branch branch(ctx);
  EXPECT_TRUE(branch.context().planning());
  branch.join(ctx);
}

}  // namespace
}  // namespace slimexx::ops::testing
