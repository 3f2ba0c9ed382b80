// Tokens that the host did not know yet when it staged them, filled in from what was sampled.
#include "kernels/vocabulary/launch.cuh"
#include "slimexx/kernels/vocabulary.h"

namespace slimexx::kernels {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    resolve_tokens_kernel(int32_t* tokens, int64_t count, const int32_t* sampled) {
  vocabulary::enter_kernel();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const int32_t token = tokens[i];
  if (token < 0) tokens[i] = max(sampled[~token], 0);
}

}  // namespace

cudaError_t resolve_tokens(int32_t* tokens, int64_t count, const int32_t* sampled,
                           cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  return vocabulary::launch(resolve_tokens_kernel, {(count + kThreads - 1) / kThreads, kThreads},
                            stream, tokens, count, sampled);
}

}  // namespace slimexx::kernels
