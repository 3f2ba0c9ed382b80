// Converts DType to the kernels' RankTerm. Only in builds with CUDA.
#pragma once
#include "slimexx/kernels/rank_sum.h"
#include "slimexx/tensor/dtype.h"

namespace slimexx::dist {

inline kernels::RankTerm rank_term(tensor::DType dtype) {
  if (dtype == tensor::DType::kF32) return kernels::RankTerm::kF32;
  return dtype == tensor::DType::kF64 ? kernels::RankTerm::kF64 : kernels::RankTerm::kBf16;
}

}  // namespace slimexx::dist
