// Rounds of work; half of each round runs on a branch.
#pragma once
#include <cstdint>

#include "ops/array.h"
#include "slimexx/ops/branch.h"
#include "slimexx/ops/elementwise.h"

namespace slimexx::ops::testing {

// x += step; then y = x on a branch and, concurrently, z = x; then sum = y + z. The sum is wrong
// (not 2 x) if the branch does not wait for x, or the sum does not wait for the branch.
struct BranchRound {
  Tensor x, step, y, z, sum;
  Tensor memory = Tensor(nullptr, DType::kU8, x.device(), {0});

  void run(const Context& ctx) const {
    add(ctx, x, x, step);
    Branch branch(ctx, memory);
    copy(branch.context(), y, x);
    copy(ctx, z, x);
    branch.join();
    add(ctx, sum, y, z);
  }
};

inline Array filled(int64_t size, float value) {
  Array a({size});
  for (int64_t i = 0; i < size; ++i) a[i] = value;
  return a;
}

}  // namespace slimexx::ops::testing
