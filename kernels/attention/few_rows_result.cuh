// What a computing warpgroup of few_rows.cu has of a run: its segments merged left to right, and
// their way to memory.
#pragma once
#include <cstdint>

#include "kernels/attention/few_rows_runs.cuh"
#include "kernels/attention/few_rows_walk.cuh"

namespace slimexx::kernels::attention {

// Outputs of a thread with the maxima and sums of their rows, over one segment or several merged.
template <int kHeadDim, int kRows>
struct RunResult {
  using Walk = FewRowsWalk<kHeadDim, kRows>;
  float output[Walk::kParts][kRows / 2];
  float maximum[Walk::kOwn], sum[Walk::kOwn];

  __device__ __forceinline__ void take(Walk& walk) {
    walk.gather_sums(sum);
#pragma unroll
    for (int n = 0; n < Walk::kOwn; ++n) maximum[n] = walk.maximum[n];
#pragma unroll
    for (int x = 0; x < Walk::kParts * kRows / 2; ++x) {
      output[x / (kRows / 2)][x % (kRows / 2)] = walk.output[x / (kRows / 2)][x % (kRows / 2)];
    }
  }

  __device__ __forceinline__ void join(const RunResult& later, float c) {
    SegmentMerge merge[Walk::kOwn];
#pragma unroll
    for (int n = 0; n < Walk::kOwn; ++n) {
      merge[n] = plan_merge(maximum[n], sum[n], later.maximum[n], later.sum[n], c);
    }
#pragma unroll
    for (int x = 0; x < Walk::kParts * kRows / 2; ++x) {
      const int at = x % (kRows / 2);
      float& earlier = output[x / (kRows / 2)][at];
      earlier = merge_value(earlier, later.output[x / (kRows / 2)][at], merge[at / 4 * 2 + at % 2]);
    }
  }

  // Into this block's shared memory at `address`, for the thread of the same number elsewhere.
  __device__ __forceinline__ void share(uint32_t address) const {
    uint32_t slot = address + threadIdx.x * 16;
    const auto write = [&](float a, float b, float c, float d) {
      asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(slot), "f"(a), "f"(b), "f"(c),
                   "f"(d)
                   : "memory");
      slot += 128 * 16;
    };
#pragma unroll
    for (int x = 0; x < Walk::kParts * kRows / 2; x += 4) {
      const float(&part)[kRows / 2] = output[x / (kRows / 2)];
      const int at = x % (kRows / 2);
      write(part[at], part[at + 1], part[at + 2], part[at + 3]);
    }
#pragma unroll
    for (int n = 0; n < Walk::kOwn; n += 2) write(maximum[n], maximum[n + 1], sum[n], sum[n + 1]);
  }

  // What block `rank` of the cluster has shared.
  __device__ __forceinline__ void read(uint32_t address, int rank) {
    uint32_t slot;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(slot)
                 : "r"(address + threadIdx.x * 16), "r"(rank));
    const auto next = [&](float& a, float& b, float& c, float& d) {
      asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                   : "=f"(a), "=f"(b), "=f"(c), "=f"(d)
                   : "r"(slot)
                   : "memory");
      slot += 128 * 16;
    };
#pragma unroll
    for (int x = 0; x < Walk::kParts * kRows / 2; x += 4) {
      float(&part)[kRows / 2] = output[x / (kRows / 2)];
      const int at = x % (kRows / 2);
      next(part[at], part[at + 1], part[at + 2], part[at + 3]);
    }
#pragma unroll
    for (int n = 0; n < Walk::kOwn; n += 2) next(maximum[n], maximum[n + 1], sum[n], sum[n + 1]);
  }
};

// Rows whose keys all lie in the run are finished; rows without keys in it write nothing. Lanes 4
// apart swap values, so that each holds neighbouring columns of one row.
template <int kHeadDim, int kRows>
__device__ __forceinline__ void store_run(const Problem& problem, const Run& run,
                                          const int (&positions)[kRows / 4],
                                          const RunResult<kHeadDim, kRows>& merged) {
  const int lane = threadIdx.x % 32;
  const bool odd = lane / 4 % 2 == 1;
  const bool tells_state = threadIdx.x < 8;
#pragma unroll
  for (int g = 0; g < kRows / 8; ++g) {
    float2 pairs[2 * (kHeadDim / 64)];
#pragma unroll
    for (int x = 0; x < 2 * (kHeadDim / 64); ++x) {
      const float even_row = merged.output[x / 2][4 * g + x % 2 * 2];
      const float odd_row = merged.output[x / 2][4 * g + x % 2 * 2 + 1];
      const float other = __shfl_xor_sync(0xffffffffu, odd ? even_row : odd_row, 4);
      pairs[x] = odd ? make_float2(other, odd_row) : make_float2(even_row, other);
    }
    const int position = odd ? positions[2 * g + 1] : positions[2 * g];
    const float maximum = odd ? merged.maximum[2 * g + 1] : merged.maximum[2 * g];
    const float sum = odd ? merged.sum[2 * g + 1] : merged.sum[2 * g];
    if (position < run.first_segment * kAttentionSegmentKeys) continue;
    const int row = 8 * g + lane % 4 * 2 + (odd ? 1 : 0);
    const int column = static_cast<int>(threadIdx.x / 32) * 16 + lane / 8 * 2;
    if (run.first_segment > 0 || position >= run.last_segment * kAttentionSegmentKeys) {
      const int64_t at = partial_row(problem, run.first_segment, run.sequence, run.head, row);
      if (tells_state) problem.partial_state[at] = make_float2(maximum, sum);
#pragma unroll
      for (int x = 0; x < 2 * (kHeadDim / 64); ++x) {
        *reinterpret_cast<float2*>(problem.partial_output + at * kHeadDim + column + x / 2 * 64 +
                                   x % 2 * 8) = pairs[x];
      }
      continue;
    }
    const int64_t token = run.sequence.first_token + row / problem.group;
    const int head = run.head * problem.group + row % problem.group;
    if (problem.lse != nullptr && tells_state) {
      problem.lse[token * problem.query_heads + head] = log_sum_exp(maximum, sum, problem.scale);
    }
    const float inverse = __frcp_rn(sum);
#pragma unroll
    for (int x = 0; x < 2 * (kHeadDim / 64); ++x) {
      *reinterpret_cast<uint32_t*>(problem.out + token * problem.out_stride + head * kHeadDim +
                                   column + x / 2 * 64 + x % 2 * 8) =
          finish_pair(pairs[x].x, pairs[x].y, inverse);
    }
  }
}

}  // namespace slimexx::kernels::attention
