// Which of the heuristic's answers a product takes.
#pragma once
#include <cublasLt.h>

#include <span>

#include "kernels/gemm_backward/products.h"

namespace slimexx::kernels {

// The answer to take instead of the first, or null: a function of the product's sizes and of what
// the answers are. Asks nothing of the device.
const cublasLtMatmulHeuristicResult_t* find_preferred(
    const GradProduct& product, std::span<const cublasLtMatmulHeuristicResult_t> answers);

}  // namespace slimexx::kernels
