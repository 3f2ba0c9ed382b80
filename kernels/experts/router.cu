// The router, with one warp per token.
#include "kernels/common/early_launch.cuh"
#include "kernels/common/sizes.h"
#include "kernels/experts/choose.cuh"

namespace slimexx::kernels {
namespace {

using namespace experts;

constexpr int kWarps = 4;  // per block

struct RouterProblem {
  RouterShape shape;
  int64_t tokens;
};

template <int kPerLane>
__global__ void __launch_bounds__(32 * kWarps)
    route_kernel(const RouterProblem p, int32_t* ids, float* weights, const float* logits,
                 const float* bias) {
  enter_layer_kernel();
  __shared__ float rows[kWarps][32 * kPerLane];
  const int64_t token = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (token >= p.tokens) return;
  route_row<kPerLane>(p.shape, logits + token * p.shape.experts, bias, rows[threadIdx.x / 32],
                      ids + token * p.shape.top_k, weights + token * p.shape.top_k);
}

template <int kPerLane>
__global__ void __launch_bounds__(32 * kWarps)
    route_backward_kernel(const RouterProblem p, float* dlogits, const float* dweights,
                          const int32_t* ids, const float* logits) {
  enter_kernel();
  __shared__ float rows[kWarps][2][32 * kPerLane];
  const RouterShape& shape = p.shape;
  const int lane = threadIdx.x % 32;
  const int64_t token = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (token >= p.tokens) return;
  const int experts = static_cast<int>(shape.experts), k = static_cast<int>(shape.top_k);
  float* own_scores = rows[threadIdx.x / 32][0];
  float* dscores = rows[threadIdx.x / 32][1];
  float scores[kPerLane];
  score_row(logits + token * experts, experts, shape.sigmoid, scores);
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    own_scores[lane + 32 * i] = scores[i];
    dscores[lane + 32 * i] = 0;
  }
  __syncwarp();
  const int32_t* chosen = ids + token * k;
  const float* dw = dweights + token * k;
  float sum = 1, mean = 0;
  if (shape.normalized) {
    sum = shape.epsilon;
    for (int j = 0; j < k; ++j) sum += own_scores[chosen[j]];
    for (int j = 0; j < k; ++j) mean += dw[j] * own_scores[chosen[j]] / sum;
  }
  if (lane < k) dscores[chosen[lane]] = shape.scaling_factor / sum * (dw[lane] - mean);
  __syncwarp();
  float weighted = 0;  // the mean of dscores under the softmax
  for (int j = 0; j < k && !shape.sigmoid; ++j) {
    weighted += dscores[chosen[j]] * own_scores[chosen[j]];
  }
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int expert = lane + 32 * i;
    if (expert >= experts) break;
    const float slope = shape.sigmoid ? 1.0f - scores[i] : 1.0f;
    dlogits[token * experts + expert] = scores[i] * slope * (dscores[expert] - weighted);
  }
}

// One warp per token.
template <class Kernel, class... Arguments>
const char* launch_rows(Kernel* kernel, const RouterProblem& problem, cudaStream_t stream,
                        const Arguments&... arguments) {
  const dim3 grid(static_cast<unsigned>(divide_up(problem.tokens, kWarps)));
  const cudaError_t error =
      launch_early(kernel, {grid, 32 * kWarps}, stream, problem, arguments...);
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace

const char* route_forward(int32_t* ids, float* weights, const float* logits, const float* bias,
                          const RouterShape& shape, int64_t tokens, cudaStream_t stream) {
  if (const char* fault = find_fault(shape, tokens)) return fault;
  if (tokens == 0) return nullptr;
  auto* kernel = shape.experts <= 128   ? route_kernel<4>
                 : shape.experts <= 256 ? route_kernel<8>
                                        : route_kernel<12>;
  return launch_rows(kernel, {shape, tokens}, stream, ids, weights, logits, bias);
}

const char* route_backward(float* dlogits, const float* dweights, const int32_t* ids,
                           const float* logits, const RouterShape& shape, int64_t tokens,
                           cudaStream_t stream) {
  if (const char* fault = find_fault(shape, tokens)) return fault;
  if (tokens == 0) return nullptr;
  auto* kernel = shape.experts <= 128   ? route_backward_kernel<4>
                 : shape.experts <= 256 ? route_backward_kernel<8>
                                        : route_backward_kernel<12>;
  return launch_rows(kernel, {shape, tokens}, stream, dlogits, dweights, ids, logits);
}

}  // namespace slimexx::kernels
