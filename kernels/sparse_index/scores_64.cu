#include "kernels/sparse_index/scores.cuh"

namespace slimexx::kernels::sparse_index {

cudaError_t launch_64_heads(const Launch& launch, cudaStream_t stream) {
  return launch_heads<64>(launch, stream);
}

}  // namespace slimexx::kernels::sparse_index
