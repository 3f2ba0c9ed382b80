// Tests a branch on a second stream of a device, launched call by call and recorded in a graph.
#include <gtest/gtest.h>

#include "ops/branch_cases.h"
#include "ops/cuda/cuda_testing.h"
#include "slimexx/tensor/graph.h"

namespace slimexx::ops::testing {
namespace {

using BranchCuda = DeviceTest;

constexpr int64_t kSize = 1 << 24;  // a copy takes 30 us, a launch 3

void expect_sums(const OnDevice& sum, float expected) {
  const Array got = sum.back();
  for (int64_t i = 0; i < kSize; i += 997) ASSERT_EQ(got[i], expected) << "at " << i;
}

TEST_F(BranchCuda, RunsBehindWhatWasBeforeAndAheadOfWhatComesAfter) {
  const Array zero = filled(kSize, 0);
  const OnDevice x = as_is(zero), step = as_is(filled(kSize, 1));
  const OnDevice y = as_is(zero), z = as_is(zero), sum = as_is(zero);
  const BranchRound round{x, step, y, z, sum};
  tensor::Arena arena(test_device(), 1 << 10, "test");
  const Context ctx = compute_context(arena);
  for (int i = 0; i < 10; ++i) round.run(ctx);
  expect_sums(sum, 20);

  const tensor::Graph graph(ctx.stream, [&] {
    for (int i = 0; i < 10; ++i) round.run(ctx);
  });
  for (int i = 0; i < 5; ++i) graph.launch(ctx.stream);
  expect_sums(sum, 120);
}

}  // namespace
}  // namespace slimexx::ops::testing
