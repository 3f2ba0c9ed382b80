// The router of a few tokens and the order of their choices, by one thread block: a warp a token.
#include "kernels/common/early_launch.cuh"
#include "kernels/experts/choose.cuh"
#include "kernels/experts/order.cuh"

namespace slimexx::kernels {
namespace {

using namespace experts;

constexpr int kMostTokens = kOrderWarps, kMostChoices = kOrderThreads;

template <int kPerLane>
__global__ void __launch_bounds__(kOrderThreads)
    route_and_sort_kernel(const RouterShape shape, const Order order, int32_t* ids, float* weights,
                          const float* logits, const float* bias) {
  enter_layer_kernel();
  __shared__ union {
    OrderShared order;
    float rows[kMostTokens][32 * kPerLane];
  } shared;
  const int token = static_cast<int>(threadIdx.x) / 32;
  const int64_t first = token * shape.top_k;
  if (first < order.count) {
    route_row<kPerLane>(shape, logits + token * shape.experts, bias, shared.rows[token],
                        ids + first, weights + first);
  }
  __syncthreads();
  order_choices<1>(order, shared.order, [ids](int choice) { return ids[choice]; });
}

}  // namespace

bool fuses_route_and_sort(const RouterShape& shape, int64_t tokens) {
  return tokens <= kMostTokens && tokens * shape.top_k <= kMostChoices;
}

const char* route_and_sort(int32_t* ids, float* weights, const RoutedOrder& order,
                           const float* logits, const float* bias, const RouterShape& shape,
                           int64_t tokens, cudaStream_t stream) {
  if (const char* fault = find_fault(shape, tokens)) return fault;
  if (!fuses_route_and_sort(shape, tokens)) return "route_and_sort: too many choices";
  auto* kernel = shape.experts <= 128   ? route_and_sort_kernel<4>
                 : shape.experts <= 256 ? route_and_sort_kernel<8>
                                        : route_and_sort_kernel<12>;
  const Order rows{order.offsets,
                   order.choices,
                   order.tokens,
                   order.rows,
                   static_cast<int>(tokens * shape.top_k),
                   static_cast<int>(shape.experts),
                   static_cast<int>(shape.top_k)};
  const cudaError_t error = launch_early(kernel, {dim3(1), kOrderThreads}, stream, shape, rows, ids,
                                         weights, logits, bias);
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace slimexx::kernels
