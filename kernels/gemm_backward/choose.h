// Selects one of the algorithms that cuBLASLt's heuristic suggests for a product.
#pragma once
#include <cublasLt.h>

#include <span>

#include "kernels/gemm_backward/products.h"

namespace slimexx::kernels {

// Returns the suggestion to use instead of the first one; null: use the first. Depends only on the
// product's sizes and on the suggestions, not on the device.
const cublasLtMatmulHeuristicResult_t* find_preferred(
    const GradProduct& product, std::span<const cublasLtMatmulHeuristicResult_t> answers);

}  // namespace slimexx::kernels
