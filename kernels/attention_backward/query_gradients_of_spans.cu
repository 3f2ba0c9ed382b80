// dQ if gradients of only some queries are requested: blocks without such queries are skipped.
#include "kernels/attention_backward/query_gradients.cuh"

namespace slimexx::kernels::attention_gradient {

cudaError_t launch_query_gradients_of_spans(const Launch& parameters, int sm_count,
                                            cudaStream_t stream) {
  return parameters.head_dim == 128 ? launch<128, true>(parameters, sm_count, stream)
                                    : launch<64, true>(parameters, sm_count, stream);
}

}  // namespace slimexx::kernels::attention_gradient
