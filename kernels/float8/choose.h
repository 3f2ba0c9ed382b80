// The choice of tiles of FP8 products, shared with the benchmark.
#pragma once
#include <cstdint>

#include "slimexx/kernels/float8.h"

namespace slimexx::kernels {

// The rows of a swapped tile are a multiple of these; in a cluster, so are the rows that each
// thread block loads.
inline constexpr int64_t kFloat8RowStep = 8;
inline constexpr int64_t kFloat8GateUpRowStep = 16;

// Reduces the rows of a swapped tile as far as the number of waves stays the same.
Fp8GemmConfig balance_float8_rows(Fp8GemmConfig config, int64_t m, int64_t n,
                                  int64_t row_step = kFloat8RowStep);

}  // namespace slimexx::kernels
