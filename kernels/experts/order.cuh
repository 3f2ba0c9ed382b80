// Sorts a few choices by expert with one thread block. Each choice is read once and kept in a
// register, together with its index among its warp's choices of the same expert.
#pragma once
#include "slimexx/kernels/experts.h"

namespace slimexx::kernels::experts {

inline constexpr int kOrderThreads = 512, kOrderWarps = kOrderThreads / 32;

struct Order {
  int32_t *offsets, *choices, *tokens, *rows;
  int count, experts, top_k;
};

struct OrderShared {
  int of_warp[kOrderWarps][kMostExperts];  // choices per expert; then the sum over earlier warps
  int first[kMostExperts];                 // the first row of each expert
  int of_scan[kOrderWarps];                // choices of the experts that a warp scans
};

// The lanes of a warp whose choices go to the same expert.
struct Peers {
  int before, all;  // how many of these lanes are lower; how many in all
  bool leads;
};
__device__ __forceinline__ Peers find_peers(int expert) {
  const unsigned same = __match_any_sync(0xffffffff, expert);
  const int before = __popc(same & ((1u << threadIdx.x % 32) - 1));
  return {before, __popc(same), expert >= 0 && before == 0};
}

// Exclusive prefix sum over the experts: returns the first row of this thread's expert, which has
// `own` choices.
__device__ __forceinline__ int scan_experts(int own, int (&of_scan)[kOrderWarps]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int sum = own;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(0xffffffff, sum, step);
    if (lane >= step) sum += other;
  }
  if (lane == 31) of_scan[warp] = sum;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kOrderWarps; ++w) sum += w < warp ? of_scan[w] : 0;
  return sum - own;
}

// Sorts at most kOrderThreads * kOwn choices. Calls expert_of(choice) once for every choice below
// out.count.
template <int kOwn, class ExpertOf>
__device__ __forceinline__ void order_choices(const Order& out, OrderShared& shared,
                                              const ExpertOf& expert_of) {
  static_assert(kMostExperts <= kOrderThreads, "a thread scans one expert");
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int first = warp * 32 * kOwn + lane;
  int expert[kOwn], place[kOwn];  // places among the warp's choices
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int choice = first + 32 * i;
    expert[i] = choice < out.count ? expert_of(choice) : -1;
  }
  int* own = shared.of_warp[warp];
  for (int e = lane; e < out.experts; e += 32) own[e] = 0;
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const Peers peers = find_peers(expert[i]);
    if (expert[i] >= 0) place[i] = own[expert[i]] + peers.before;
    __syncwarp();
    if (peers.leads) own[expert[i]] += peers.all;
    __syncwarp();
  }
  __syncthreads();
  const int e = static_cast<int>(threadIdx.x);
  int total = 0;
  if (e < out.experts) {
    int counts[kOrderWarps];
#pragma unroll
    for (int w = 0; w < kOrderWarps; ++w) counts[w] = shared.of_warp[w][e];
#pragma unroll
    for (int w = 0; w < kOrderWarps; ++w) {
      shared.of_warp[w][e] = total;
      total += counts[w];
    }
  }
  const int row = scan_experts(total, shared.of_scan);
  if (e < out.experts) {
    shared.first[e] = row;
    out.offsets[e] = row;
    if (e == out.experts - 1) out.offsets[out.experts] = row + total;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    if (expert[i] < 0) continue;
    const int choice = first + 32 * i;
    const int to = shared.first[expert[i]] + own[expert[i]] + place[i];
    out.rows[choice] = to;
    out.choices[to] = choice;
    out.tokens[to] = choice / out.top_k;
  }
}

}  // namespace slimexx::kernels::experts
