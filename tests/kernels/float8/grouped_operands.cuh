// Operands of a grouped FP8 product: the rows of experts, and one copy of the weights per expert.
// Shared by the check and the benchmark.
#pragma once
#include <random>
#include <vector>

#include "slimexx/kernels/float8_experts.h"
#include "tests/kernels/float8/operands.cuh"

namespace slimexx::kernels::testing {

// How many rows each expert has.
enum class ExpertRows {
  kRandom,    // each row chooses an expert
  kRagged,    // of three neighbours one has no row, one has a single row, one has more
  kOne,       // the middle expert has all rows
  kDistinct,  // no expert has more than one row
  kEven,
};

// [experts + 1]
inline std::vector<int32_t> make_offsets(int64_t rows, int64_t experts, ExpertRows spread,
                                         uint64_t seed) {
  std::vector<int32_t> offsets(static_cast<size_t>(experts) + 1, 0);
  std::mt19937_64 engine(seed);
  const auto draw = [&engine](int64_t below) {
    return static_cast<int64_t>(engine() % static_cast<uint64_t>(below));
  };
  for (int64_t r = 0; r < rows; ++r) {
    int64_t expert = r % experts;
    if (spread == ExpertRows::kRandom) expert = draw(experts);
    if (spread == ExpertRows::kOne) expert = experts / 2;
    if (spread == ExpertRows::kDistinct) expert = r * experts / rows;
    if (spread == ExpertRows::kRagged) {
      const int64_t single = 3 * r + 2;
      expert = single < experts ? single : 3 * draw((experts + 2) / 3);
    }
    ++offsets[static_cast<size_t>(expert) + 1];
  }
  for (size_t e = 1; e < offsets.size(); ++e) offsets[e] += offsets[e - 1];
  return offsets;
}

struct GroupedFloat8Case {
  int64_t rows, experts, n, k;
  ExpertRows spread = ExpertRows::kRandom;
  int64_t room = 0;  // the upper bound on the rows minus their number
  F8Values values = F8Values::kNormal;
  uint64_t seed = 60;
};

struct GroupedFloat8Operands : Float8Operands {
  explicit GroupedFloat8Operands(const GroupedFloat8Case& c)
      : Float8Operands({.m = c.rows + c.room,
                        .n = c.n,
                        .k = c.k,
                        .values = c.values,
                        .copies = c.experts,
                        .seed = c.seed}),
        of(c),
        host_offsets(make_offsets(c.rows, c.experts, c.spread, c.seed)),
        offsets(c.experts + 1) {
    SLX_CUDA(cudaMemcpy(offsets.data(), host_offsets.data(), host_offsets.size() * 4,
                        cudaMemcpyHostToDevice));
  }
  Fp8GroupedGemmArgs grouped(void* y) const {
    return {.x = x.data(),
            .x_scales = x_scales.data(),
            .w = w.data(),
            .w_scales = w_scales.data(),
            .y = y,
            .rows = {offsets.data(), of.experts, of.rows + of.room, of.rows},
            .n = n,
            .k = k};
  }
  // Queues the reference. `one_x_row`: row 0 of x is the input of all rows.
  void multiply_reference(__nv_bfloat16* y, float* y_f32, bool one_x_row = false) const {
    for (int64_t e = 0; e < of.experts; ++e) {
      const int64_t first = host_offsets[static_cast<size_t>(e)];
      const int64_t count = host_offsets[static_cast<size_t>(e) + 1] - first;
      if (count == 0) continue;
      const int64_t from = one_x_row ? 0 : first;
      Fp8GemmArgs a = args(count, nullptr, e);
      a.x = x.data() + from * k;
      a.x_scales = x_scales.data() + from;
      a.x_scale_stride = fp8_scale_stride(m);
      const dim3 grid(static_cast<unsigned>(n / 8), static_cast<unsigned>((count + 63) / 64));
      multiply_f8_in_order<<<grid, 128>>>(a, y + first * n, y_f32 + first * n);
      SLX_CUDA(cudaGetLastError());
    }
  }

  GroupedFloat8Case of;
  std::vector<int32_t> host_offsets;
  DeviceArray<int32_t> offsets;
};

}  // namespace slimexx::kernels::testing
