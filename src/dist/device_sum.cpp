#include "dist/backend.h"
#include "slimexx/kernels/rank_sum.h"
#include "slimexx/tensor/cuda_check.h"

namespace slimexx::dist {
namespace {

kernels::RankTerm term_type(tensor::DType dtype) {
  if (dtype == tensor::DType::kF32) return kernels::RankTerm::kF32;
  return dtype == tensor::DType::kF64 ? kernels::RankTerm::kF64 : kernels::RankTerm::kBf16;
}

}  // namespace

void sum_on_device(tensor::Stream stream, const Terms& terms) {
  SLX_CUDA(kernels::sum_rank_terms(terms.own, terms.others, term_type(terms.dtype), terms.rank,
                                   terms.size, terms.n, static_cast<cudaStream_t>(stream.handle)));
}

}  // namespace slimexx::dist
