// The choice of tiles of FP8 products, shared with the benchmark.
#pragma once
#include <cstdint>

#include "slimexx/kernels/float8.h"

namespace slimexx::kernels {

// The rows of a swapped tile and, in a cluster, the rows that each thread block loads are multiples
// of these constants.
inline constexpr int64_t kFloat8RowStep = 8;
inline constexpr int64_t kFloat8GateUpRowStep = 16;

// Reduces the rows of a swapped tile as far as the number of waves stays the same.
Fp8GemmConfig balance_float8_rows(Fp8GemmConfig config, int64_t m, int64_t n,
                                  int64_t row_step = kFloat8RowStep);

// Clocks of a tile with `tokens` rows of x in memory.
double estimate_float8_tile(const Fp8GemmConfig& config, int64_t tokens, int64_t k);

// Clocks of a product whose multiprocessors need `tile_clocks` for their tiles. read_once: each
// weight is read by one tile.
double estimate_float8_product(const Fp8GemmConfig& config, double tile_clocks, double weight_bytes,
                               bool read_once);

}  // namespace slimexx::kernels
