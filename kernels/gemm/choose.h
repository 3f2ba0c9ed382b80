// The cost model that choose_gemm_config uses; public for the benchmark to which it was fitted.
#pragma once
#include <cstdint>

#include "slimexx/kernels/gemm.h"

namespace slimexx::kernels {

// Nanoseconds that the product should take under a configuration, weights not in L2.
double estimate_gemm_ns(const GemmConfig& config, int64_t m, int64_t n, int64_t k);

// Equal shares of the tokens for all tiles, and the rows of a swapped tile lowered to the fewest
// that need no more waves.
GemmConfig balance_gemm_tiles(GemmConfig config, int64_t m, int64_t n);

}  // namespace slimexx::kernels
