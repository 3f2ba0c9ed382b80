#include "dist/backend.h"
#include "dist/rank_term.h"
#include "slimexx/tensor/cuda_check.h"

namespace slimexx::dist {
void sum_on_device(tensor::Stream stream, const Terms& terms) {
  SLX_CUDA(kernels::sum_rank_terms(terms.own, terms.others, rank_term(terms.dtype), terms.rank,
                                   terms.size, terms.n, static_cast<cudaStream_t>(stream.handle)));
}

}  // namespace slimexx::dist
