// The router: one warp a token. Lane l holds the scores of experts l, l + 32, ...
#include <cfloat>

#include "kernels/common/early_launch.cuh"
#include "kernels/common/sizes.h"
#include "slimexx/kernels/experts.h"

namespace slimexx::kernels {
namespace {

constexpr int kWarps = 4;  // of a block
constexpr unsigned kAll = 0xffffffff;

struct RouterProblem {
  RouterShape shape;
  int64_t tokens;
};

template <int kPerLane>
__device__ __forceinline__ void score_row(const float* logits, int experts, bool sigmoid,
                                          float (&scores)[kPerLane]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int expert = lane + 32 * i;
    scores[i] = expert < experts ? logits[expert] : -INFINITY;
  }
  if (sigmoid) {
#pragma unroll
    for (float& score : scores) score = 1.0f / (1.0f + expf(-score));
    return;
  }
  float largest = -INFINITY;
#pragma unroll
  for (const float score : scores) largest = fmaxf(largest, score);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(kAll, largest, step));
  }
  float sum = 0;
#pragma unroll
  for (float& score : scores) sum += score = expf(score - largest);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(kAll, sum, step);
#pragma unroll
  for (float& score : scores) score /= sum;
}

// Grows with the value, and for equal values (zeros of both signs are equal) as the index falls.
// Never 0, whatever the value.
__device__ __forceinline__ uint64_t rank_key(float value, int index) {
  const uint32_t bits = __float_as_uint(value + 0.0f);
  const uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return (uint64_t{ordered} << 32) | (0xffffffffu - static_cast<uint32_t>(index));
}
__device__ __forceinline__ int index_of(uint64_t key) {
  return static_cast<int>(0xffffffffu - static_cast<uint32_t>(key));
}
__device__ __forceinline__ uint64_t find_largest(uint64_t key) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const uint64_t other = __shfl_xor_sync(kAll, key, step);
    if (other > key) key = other;
  }
  return key;
}

// Bit g of the result: group g is kept. `choice` [experts] is this warp's.
__device__ __forceinline__ uint32_t keep_groups(const float* choice, const RouterShape& shape) {
  const int lane = threadIdx.x % 32;
  const int size = static_cast<int>(shape.experts / shape.groups);
  float first = -INFINITY, second = -INFINITY;
  if (lane < shape.groups) {
    for (int e = lane * size; e < (lane + 1) * size; ++e) {
      if (choice[e] > first) {
        second = first;
        first = choice[e];
      } else if (choice[e] > second) {
        second = choice[e];
      }
    }
  }
  uint64_t key = lane < shape.groups ? rank_key(size == 1 ? first : first + second, lane) : 0;
  uint32_t kept = 0;
  for (int64_t i = 0; i < shape.kept_groups; ++i) {
    const int winner = index_of(find_largest(key));
    kept |= 1u << winner;
    if (lane == winner) key = 0;
  }
  return kept;
}

template <int kPerLane>
__global__ void __launch_bounds__(32 * kWarps)
    route_kernel(const RouterProblem p, int32_t* ids, float* weights, const float* logits,
                 const float* bias) {
  enter_kernel();
  __shared__ float rows[kWarps][32 * kPerLane];
  const RouterShape& shape = p.shape;
  const int lane = threadIdx.x % 32;
  const int64_t token = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (token >= p.tokens) return;
  const int experts = static_cast<int>(shape.experts), k = static_cast<int>(shape.top_k);
  float* own = rows[threadIdx.x / 32];
  float scores[kPerLane];
  score_row(logits + token * experts, experts, shape.sigmoid, scores);
  uint64_t keys[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int expert = lane + 32 * i;
    const float choice = scores[i] + (bias != nullptr && expert < experts ? bias[expert] : 0.0f);
    keys[i] = expert < experts ? rank_key(choice, expert) : 0;
    own[expert] = choice;
  }
  if (shape.kept_groups < shape.groups) {
    __syncwarp();
    const uint32_t kept = keep_groups(own, shape);
    const int size = static_cast<int>(shape.experts / shape.groups);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int expert = lane + 32 * i;
      if (expert < experts && (kept >> expert / size & 1) == 0)
        keys[i] = rank_key(-INFINITY, expert);
    }
  }
  uint32_t chosen = 0;  // bit i: expert lane + 32 i
  for (int j = 0; j < k; ++j) {
    uint64_t best = 0;
#pragma unroll
    for (const uint64_t key : keys) best = key > best ? key : best;
    const int winner = index_of(find_largest(best));
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (lane + 32 * i != winner) continue;
      keys[i] = 0;
      chosen |= 1u << i;
    }
  }
  __syncwarp();
  // Places by ascending expert.
  int before = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const bool mine = (chosen >> i & 1) != 0;
    const uint32_t all = __ballot_sync(kAll, mine);
    const int place = before + __popc(all & ((1u << lane) - 1));
    if (mine) {
      ids[token * k + place] = lane + 32 * i;
      own[place] = scores[i];
    }
    before += __popc(all);
  }
  __syncwarp();
  float sum = shape.normalized ? shape.epsilon : 1.0f;
  for (int j = 0; j < k && shape.normalized; ++j) sum += own[j];
  if (lane < k) weights[token * k + lane] = own[lane] / sum * shape.scaling_factor;
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

const char* find_fault(const RouterShape& s, int64_t tokens) {
  if (s.experts < 1 || s.experts > kMostExperts) {
    return "router: the number of experts must be from 1 to 384";
  }
  if (s.top_k < 1 || s.top_k > kMostRoutedTo || s.top_k > s.experts) {
    return "router: top_k must be from 1 to 32, at most the number of experts";
  }
  if (s.groups < 1 || s.groups > kMostExpertGroups || s.experts % s.groups != 0 ||
      s.kept_groups < 1 || s.kept_groups > s.groups) {
    return "router: groups must be from 1 to 32 and divide the experts";
  }
  if (tokens < 0 || tokens > INT32_MAX / kMostRoutedTo) return "router: too many tokens";
  return nullptr;
}

// A warp a token.
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
