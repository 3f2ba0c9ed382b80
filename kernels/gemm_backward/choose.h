// Which of the heuristic's answers a product takes.
#pragma once
#include <cublasLt.h>

#include <span>

#include "kernels/gemm_backward/products.h"

namespace slimexx::kernels {

// The index of one of the answers, at least one: a function of the product's sizes and of what the
// answers are. Asks nothing of the device.
size_t choose_answer(const GradProduct& product,
                     std::span<const cublasLtMatmulHeuristicResult_t> answers);

}  // namespace slimexx::kernels
