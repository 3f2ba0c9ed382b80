#include "kernels/attention_backward/query_gradients.cuh"

namespace slimexx::kernels::attention_gradient {

cudaError_t launch_query_gradients(const Launch& parameters, int sm_count, cudaStream_t stream) {
  if (parameters.problem.query_spans != nullptr)
    return launch_query_gradients_of_spans(parameters, sm_count, stream);
  return parameters.head_dim == 128 ? launch<128, false>(parameters, sm_count, stream)
                                    : launch<64, false>(parameters, sm_count, stream);
}

}  // namespace slimexx::kernels::attention_gradient
