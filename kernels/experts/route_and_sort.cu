// For a few tokens, one thread block with one warp per token runs the router and sorts its choices.
// The choices of a single token need no sort, because they are ascending.
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

template <int kPerLane>
__global__ void __launch_bounds__(32)
    route_one_kernel(const RouterShape shape, const Order order, int32_t* ids, float* weights,
                     const float* logits, const float* bias) {
  enter_layer_kernel();
  __shared__ float row[32 * kPerLane];
  const int lane = static_cast<int>(threadIdx.x);
  const uint32_t chosen = route_row<kPerLane>(shape, logits, bias, row, ids, weights);
  int before = 0;  // choices of experts with lower ids
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int expert = lane + 32 * i;
    const uint32_t all = __ballot_sync(kAll, (chosen >> i & 1) != 0);
    if (expert < order.experts) order.offsets[expert] = before + __popc(all & ((1u << lane) - 1));
    before += __popc(all);
  }
  if (lane == 0) order.offsets[order.experts] = before;
  if (lane >= order.top_k) return;
  order.rows[lane] = lane;
  order.choices[lane] = lane;
  order.tokens[lane] = 0;
}

template <int kPerLane>
cudaError_t start(const RouterShape& shape, const Order& order, int64_t tokens, int32_t* ids,
                  float* weights, const float* logits, const float* bias, cudaStream_t stream) {
  return tokens == 1 ? launch_early(route_one_kernel<kPerLane>, {dim3(1), 32}, stream, shape, order,
                                    ids, weights, logits, bias)
                     : launch_early(route_and_sort_kernel<kPerLane>, {dim3(1), kOrderThreads},
                                    stream, shape, order, ids, weights, logits, bias);
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
  auto* start_kernel = shape.experts <= 128   ? start<4>
                       : shape.experts <= 256 ? start<8>
                                              : start<12>;
  const Order rows{order.offsets,
                   order.choices,
                   order.tokens,
                   order.rows,
                   static_cast<int>(tokens * shape.top_k),
                   static_cast<int>(shape.experts),
                   static_cast<int>(shape.top_k)};
  const cudaError_t error = start_kernel(shape, rows, tokens, ids, weights, logits, bias, stream);
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace slimexx::kernels
