// Computes the router statistics of a step, the gradients of the load-balancing losses, and the
// update of the correction bias. Statistics are integer sums, so the order of additions does not
// matter.
#include "slimexx/kernels/router_balance.h"

#include <cuda_runtime.h>

#include "kernels/common/early_launch.cuh"
#include "kernels/common/sizes.h"

namespace slimexx::kernels {
namespace {

constexpr int kWarps = 4;  // per block
constexpr int kCountThreads = 256;
constexpr int kMostCountBlocks = 16;   // per sequence
constexpr int kMostTokenBlocks = 528;  // four for each multiprocessor
constexpr unsigned kAll = 0xffffffff;

__device__ __forceinline__ void add_to(int64_t* sum, int64_t value) {
  // In two's complement an unsigned addition also adds signed numbers.
  atomicAdd(reinterpret_cast<unsigned long long*>(sum), static_cast<unsigned long long>(value));
}

__device__ __forceinline__ float sum_warp(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(kAll, x, step);
  return x;
}

// Adds to counts [sequences, experts], which the caller has zeroed, and to the loads in `sums`.
// Block (x, y) counts a share of sequence y.
__global__ void __launch_bounds__(kCountThreads) count_kernel(const ChoiceCountArgs a) {
  enter_kernel();
  __shared__ int32_t own[kMostExperts];
  const int experts = static_cast<int>(a.experts);
  for (int e = threadIdx.x; e < experts; e += kCountThreads) own[e] = 0;
  __syncthreads();
  const int64_t begin = a.cu_seqlens[blockIdx.y] * a.top_k;
  const int64_t end = a.cu_seqlens[blockIdx.y + 1] * a.top_k;
  const int64_t stride = int64_t{gridDim.x} * kCountThreads;
  for (int64_t c = begin + int64_t{blockIdx.x} * kCountThreads + threadIdx.x; c < end; c += stride)
    atomicAdd(own + a.ids[c], 1);
  __syncthreads();
  for (int e = threadIdx.x; e < experts; e += kCountThreads) {
    if (own[e] == 0) continue;
    // Whole numbers below 2^24: exact in any order.
    atomicAdd(a.counts + int64_t{blockIdx.y} * experts + e, static_cast<float>(own[e]));
    add_to(a.sums + e, own[e]);
  }
}

// The sequence of a token.
__device__ __forceinline__ int find_sequence(const int32_t* cu_seqlens, int64_t sequences,
                                             int64_t token) {
  int low = 0, high = static_cast<int>(sequences);  // cu[low] <= token < cu[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (cu_seqlens[middle] <= token) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// The grid's warps take tokens in turn; lane l holds experts l, l + 32, ...
template <int kPerLane>
__global__ void __launch_bounds__(32 * kWarps) balance_kernel(const RouterBalanceArgs a) {
  enter_kernel();
  const int lane = threadIdx.x % 32, experts = static_cast<int>(a.experts);
  const bool has_gradient = a.rule.aux_loss_coeff != 0 || a.rule.z_loss_coeff != 0;
  int64_t probabilities[kPerLane] = {};
  int64_t aux_sum = 0, z_sum = 0;
  const int64_t stride = int64_t{gridDim.x} * kWarps;
  for (int64_t token = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; token < a.tokens;
       token += stride) {
    const int sequence = find_sequence(a.cu_seqlens, a.sequences, token);
    const int64_t tokens = a.lengths[sequence];
    const float to_frequency = static_cast<float>(experts) / static_cast<float>(a.top_k * tokens);
    const float* counts = a.counts + int64_t{sequence} * experts;
    const float* logits = a.logits + token * experts;
    float softmax[kPerLane], scores[kPerLane], frequency[kPerLane];
    float largest = -INFINITY;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int expert = lane + 32 * i;
      const bool is_one = expert < experts;
      softmax[i] = is_one ? logits[expert] : -INFINITY;
      frequency[i] = is_one ? counts[expert] * to_frequency : 0.0f;
      scores[i] = 1.0f / (1.0f + expf(-softmax[i]));
      largest = fmaxf(largest, softmax[i]);
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(kAll, largest, step));
    float sum = 0, score_sum = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      sum += softmax[i] = expf(softmax[i] - largest);
      score_sum += scores[i];
    }
    sum = sum_warp(sum);
    score_sum = a.sigmoid ? sum_warp(score_sum) + kLeastScore : 1.0f;
    const float lse = largest + logf(sum);
    float aux = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      softmax[i] /= sum;
      if (!a.sigmoid) scores[i] = softmax[i];
      const float probability = scores[i] / score_sum;
      aux += frequency[i] * probability;
      if (lane + 32 * i < experts) probabilities[i] += probability_units(probability);
    }
    aux = sum_warp(aux);
    const double share = token_share(a.rule, tokens);
    aux_sum += loss_units(aux, kMostAuxLoss, share, kAuxLossUnits);
    z_sum += loss_units(static_cast<double>(lse) * lse, kMostZLoss, share, kZLossUnits);
    if (!has_gradient) continue;
    const float aux_weight = a.rule.aux_loss_coeff * static_cast<float>(share);
    const float z_weight = 2 * a.rule.z_loss_coeff * static_cast<float>(share) * lse;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int expert = lane + 32 * i;
      if (expert >= experts) break;
      const float slope = a.sigmoid ? 1.0f - scores[i] : 1.0f;
      a.dlogits[token * experts + expert] +=
          aux_weight * (scores[i] / score_sum) * slope * (frequency[i] - aux) +
          z_weight * softmax[i];
    }
  }
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int expert = lane + 32 * i;
    if (expert < experts && probabilities[i] != 0)
      add_to(a.sums + experts + expert, probabilities[i]);
  }
  if (lane != 0) return;
  add_to(a.sums + 2 * experts, aux_sum);
  add_to(a.sums + 2 * experts + 1, z_sum);
}

__global__ void __launch_bounds__(kCountThreads)
    move_bias_kernel(float* bias, const int64_t* loads, int64_t experts, float rate) {
  enter_kernel();
  int64_t total = 0;
  for (int64_t e = 0; e < experts; ++e) total += loads[e];
  for (int64_t e = threadIdx.x; e < experts; e += kCountThreads)
    bias[e] = move_bias(bias[e], loads[e], total, experts, rate);
}

const char* text_of(cudaError_t error) {
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

const char* fault_in(int64_t tokens, int64_t sequences, int64_t experts, int64_t top_k) {
  if (experts < 1 || experts > kMostExperts)
    return "router balance: the number of experts must be from 1 to 384";
  if (top_k < 1 || top_k > kMostRoutedTo) return "router balance: top_k must be from 1 to 32";
  if (tokens < 0 || tokens > INT32_MAX / kMostRoutedTo) return "router balance: too many tokens";
  if (sequences < 0 || sequences > 65535)
    return "router balance: a microbatch may have up to 65535 sequences";
  return nullptr;
}

}  // namespace

const char* count_choices(const ChoiceCountArgs& args, cudaStream_t stream) {
  if (const char* fault = fault_in(args.tokens, args.sequences, args.experts, args.top_k))
    return fault;
  if (args.sequences == 0) return nullptr;
  const auto count_bytes = static_cast<size_t>(args.sequences * args.experts) * sizeof(float);
  cudaError_t error = cudaMemsetAsync(args.counts, 0, count_bytes, stream);
  if (error != cudaSuccess || args.tokens == 0) return text_of(error);
  const int64_t count_blocks =
      divide_up(divide_up(args.tokens * args.top_k, args.sequences), int64_t{kCountThreads});
  const dim3 count_grid(
      static_cast<unsigned>(count_blocks < kMostCountBlocks ? count_blocks : kMostCountBlocks),
      static_cast<unsigned>(args.sequences));
  return text_of(launch_early(count_kernel, {count_grid, kCountThreads}, stream, args));
}

const char* balance_router(const RouterBalanceArgs& args, cudaStream_t stream) {
  if (const char* fault = fault_in(args.tokens, args.sequences, args.experts, args.top_k))
    return fault;
  if (args.tokens == 0) return nullptr;
  const int64_t blocks = divide_up(args.tokens, int64_t{kWarps});
  const dim3 grid(static_cast<unsigned>(blocks < kMostTokenBlocks ? blocks : kMostTokenBlocks));
  auto* kernel = args.experts <= 128   ? balance_kernel<4>
                 : args.experts <= 256 ? balance_kernel<8>
                                       : balance_kernel<12>;
  return text_of(launch_early(kernel, {grid, 32 * kWarps}, stream, args));
}

const char* move_router_bias(float* bias, const int64_t* loads, int64_t experts, float rate,
                             cudaStream_t stream) {
  return text_of(
      launch_early(move_bias_kernel, {dim3(1), kCountThreads}, stream, bias, loads, experts, rate));
}

}  // namespace slimexx::kernels
