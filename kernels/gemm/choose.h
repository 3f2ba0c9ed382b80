// The cost model of choose_gemm_config, shared with the benchmark that it was fitted with.
#pragma once
#include <cstdint>

#include "slimexx/kernels/gemm.h"

namespace slimexx::kernels {

// Estimated nanoseconds of the product under a configuration, if the weights are not in L2.
double estimate_gemm_ns(const GemmConfig& config, int64_t m, int64_t n, int64_t k);

// Splits tokens evenly over the tiles if there are few, and reduces the rows of a swapped tile as
// far as the number of waves stays the same.
GemmConfig balance_gemm_tiles(GemmConfig config, int64_t m, int64_t n);

}  // namespace slimexx::kernels
