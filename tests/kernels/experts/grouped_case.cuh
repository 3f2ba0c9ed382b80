// A case of grouped products, shared by the check and the benchmark: routed rows of experts, and
// the operands of all their products.
#pragma once
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "slimexx/kernels/experts.h"
#include "tests/kernels/fill.cuh"
#include "tests/kernels/rows/rows_arrays.h"

namespace slimexx::kernels::testing {

// How many rows each expert has.
enum class Spread {
  kEven,
  kRandom,    // each row chooses an expert
  kRagged,    // of every three neighbouring experts one has no row, one has a single row, one has
              // more
  kDistinct,  // no expert has more than one row
};

struct GroupedCase {
  std::string name;
  int64_t rows, experts, n, k;
  Spread spread = Spread::kEven;
  uint64_t seed = 7;

  // [experts + 1]
  std::vector<int32_t> make_offsets() const {
    std::vector<int32_t> counts(static_cast<size_t>(experts), 0);
    std::mt19937_64 engine(seed);
    for (int64_t r = 0; r < rows; ++r) {
      int64_t expert = r % experts;
      if (spread == Spread::kRandom) {
        expert = static_cast<int64_t>(engine() % static_cast<uint64_t>(experts));
      } else if (spread == Spread::kDistinct) {
        expert = r * experts / rows;
      } else if (spread == Spread::kRagged) {
        const int64_t thirds = (experts + 2) / 3, single = 3 * r + 2;
        expert = single < experts
                     ? single
                     : 3 * static_cast<int64_t>(engine() % static_cast<uint64_t>(thirds));
      }
      ++counts[static_cast<size_t>(expert)];
    }
    std::vector<int32_t> offsets = {0};
    for (const int32_t count : counts) offsets.push_back(offsets.back() + count);
    return offsets;
  }
};

inline std::string describe(const GroupedCase& c) {
  return "grouped products " + c.name + ", " + std::to_string(c.rows) + " rows, " +
         std::to_string(c.experts) + " experts, " + std::to_string(c.n) + "x" +
         std::to_string(c.k) + ", seed " + std::to_string(c.seed);
}

// The operands on the device, with room for `room` rows after the experts' rows. There, x has
// kReadBehindExperts rows of finite numbers; all other elements are NaN.
struct GroupedOperands {
  explicit GroupedOperands(const GroupedCase& c, int64_t room_rows = 0)
      : of(c),
        room(room_rows),
        host_offsets(c.make_offsets()),
        offsets(host_offsets),
        x((c.rows + room) * c.k),
        w(c.experts * c.n * c.k),
        dy((c.rows + room) * c.n),
        y((c.rows + room) * c.n),
        h((c.rows + room) * c.n / 2),
        dx((c.rows + room) * c.k),
        dw(c.experts * c.n * c.k) {
    fill(x, (c.rows + std::min(room, kReadBehindExperts)) * c.k, c.seed, 1.0f);
    fill(w, c.experts * c.n * c.k, c.seed + 1, 1.0f / std::sqrt(static_cast<float>(c.k)));
    fill(dy, c.rows * c.n, c.seed + 2, 1.0f);
    SLX_CUDA(cudaDeviceSynchronize());
  }
  GroupedRows rows() const { return {offsets.data(), of.experts, of.rows + room, of.rows}; }
  GroupedGemmArgs forward(void* to) const {
    return {.x = x.data(), .w = w.data(), .y = to, .rows = rows(), .n = of.n, .k = of.k};
  }
  GroupedGemmArgs input_gradient(void* to) const {
    return {.x = dy.data(), .w = w.data(), .y = to, .rows = rows(), .n = of.n, .k = of.k};
  }
  GroupedWeightGradArgs weight_gradient(float* to, bool accumulate) const {
    return {.dy = dy.data(),
            .x = x.data(),
            .dw = to,
            .rows = rows(),
            .n = of.n,
            .k = of.k,
            .accumulate = accumulate};
  }

  GroupedCase of;
  int64_t room;
  std::vector<int32_t> host_offsets;
  Array<int32_t> offsets;
  Bf16Array x, w, dy;  // operands
  Bf16Array y, h, dx;  // results
  FloatArray dw;
};

}  // namespace slimexx::kernels::testing
