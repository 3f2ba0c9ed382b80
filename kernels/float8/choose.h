// The choice of tiles of FP8 products, shared with the benchmark.
#pragma once
#include <cstdint>

#include "slimexx/kernels/float8.h"

namespace slimexx::kernels {

// Reduces the rows of a swapped tile as far as the number of waves stays the same.
Fp8GemmConfig balance_float8_rows(Fp8GemmConfig config, int64_t m, int64_t n);

// Clocks of a tile with `tokens` rows of x in memory.
double estimate_float8_tile(const Fp8GemmConfig& config, int64_t tokens, int64_t k);

}  // namespace slimexx::kernels
