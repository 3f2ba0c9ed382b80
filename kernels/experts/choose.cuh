// One warp chooses the experts of a token. Lane l holds the scores of experts l,
// l + 32, ...
#pragma once
#include <cfloat>

#include "slimexx/kernels/experts.h"

namespace slimexx::kernels::experts {

inline constexpr unsigned kAll = 0xffffffff;

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

// A key that grows with the value. If values are equal (+0 equals -0), the lower index has the
// larger key. A key is never 0.
__device__ __forceinline__ uint64_t rank_key(float value, int index) {
  const uint32_t bits = __float_as_uint(value + 0.0f);
  const uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return (uint64_t{ordered} << 32) | (0xffffffffu - static_cast<uint32_t>(index));
}
__device__ __forceinline__ int index_of(uint64_t key) {
  return static_cast<int>(0xffffffffu - static_cast<uint32_t>(key));
}
__device__ __forceinline__ uint64_t find_largest(uint64_t key) {
  const auto high = static_cast<uint32_t>(key >> 32);
  const uint32_t best = __reduce_max_sync(kAll, high);
  const uint32_t low = __reduce_max_sync(kAll, high == best ? static_cast<uint32_t>(key) : 0);
  return (uint64_t{best} << 32) | low;
}

// Returns a bit mask: bit g is set if group g is kept. `choice` [experts] belongs to this warp.
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

// Routes one token with one warp. `logits` [experts]; `own` [32 * kPerLane] in shared memory;
// outputs ids and weights [top_k]. Returns a bit mask: bit i is set if the lane's i-th expert is
// chosen.
template <int kPerLane>
__device__ __forceinline__ uint32_t route_row(const RouterShape& shape, const float* logits,
                                              const float* bias, float* own, int32_t* ids,
                                              float* weights) {
  const int lane = threadIdx.x % 32;
  const int experts = static_cast<int>(shape.experts), k = static_cast<int>(shape.top_k);
  float scores[kPerLane];
  score_row(logits, experts, shape.sigmoid, scores);
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
  // Experts are stored in ascending order.
  int before = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const bool mine = (chosen >> i & 1) != 0;
    const uint32_t all = __ballot_sync(kAll, mine);
    const int place = before + __popc(all & ((1u << lane) - 1));
    if (mine) {
      ids[place] = lane + 32 * i;
      own[place] = scores[i];
    }
    before += __popc(all);
  }
  __syncwarp();
  float sum = shape.normalized ? shape.epsilon : 1.0f;
  for (int j = 0; j < k && shape.normalized; ++j) sum += own[j];
  if (lane < k) weights[lane] = own[lane] / sum * shape.scaling_factor;
  return chosen;
}

// Null, or a message about the invalid size.
inline const char* find_fault(const RouterShape& s, int64_t tokens) {
  if (s.experts < 1 || s.experts > kMostExperts) {
    return "router: the number of experts must be from 1 to 384";
  }
  if (s.top_k < 1 || s.top_k > kMostRoutedTo || s.top_k > s.experts) {
    return "router: top_k must be from 1 to 32, at most the number of experts";
  }
  if (s.groups < 1 || s.groups > kMostExpertGroups || s.experts % s.groups != 0 ||
      s.kept_groups < 1 || s.kept_groups > s.groups) {
    return "router: groups must be from 1 to 32 and divide the experts; kept_groups from 1 to "
           "groups";
  }
  if (tokens < 0 || tokens > INT32_MAX / kMostRoutedTo) return "router: too many tokens";
  return nullptr;
}

}  // namespace slimexx::kernels::experts
