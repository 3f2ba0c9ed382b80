// Work items of few_rows.cu: how they are assigned to thread blocks, and how their results are
// stored.
#pragma once
#include <cstdint>

#include "kernels/attention/few_rows_walk.cuh"
#include "kernels/attention/key_stream.cuh"
#include "kernels/attention/problem.cuh"
#include "kernels/common/cluster.cuh"

namespace slimexx::kernels::attention {

// The work item of a thread block, for one kv head.
enum class FewRowsSplit {
  kSegments,   // one segment; the kernel merge_segments follows if there may be several
  kSequences,  // all segments of a sequence, merged in registers
  kClusters,   // one segment; a cluster has all segments of a sequence, and its first block merges
};

// Segments [first, last) of a sequence for one kv head.
struct WorkItem {
  Sequence sequence;
  int index, head, first_segment, last_segment;
};

__device__ __forceinline__ int count_segments(const Sequence& sequence) {
  return divide_up(sequence.keys(), kAttentionSegmentKeys);
}

// kSequences: the grid has gridDim.x / kv_heads places, and every round assigns a sequence to each
// place. Within each group of 32 sequences, place p gets the p-th longest in even rounds and the
// p-th shortest in odd rounds. So all places finish at about the same time, and neighbouring
// sequences are read at the same time. In the last round, places without a sequence get an empty
// item. Returns false when no sequence is left.
__device__ __forceinline__ bool assign_sequence(const Problem& problem, int index, WorkItem& item) {
  const int places = gridDim.x / problem.kv_heads, place = blockIdx.x / problem.kv_heads;
  const int round = index / gridDim.x;
  if (round * places >= problem.sequences) return false;
  const int first = round * places + place / 32 * 32, width = min(places, 32);
  const int lane = threadIdx.x % 32;
  int keys = -1;
  if (lane < width && first + lane < problem.sequences) {
    const Sequence sequence = read_sequence(problem, first + lane);
    keys = sequence.queries > 0 ? sequence.keys() : 0;
  }
  int rank = 0;
  for (int other = 0; other < width; ++other) {
    const int others = __shfl_sync(0xffffffffu, keys, other);
    rank += others > keys || (others == keys && other < lane);
  }
  const int wanted = round % 2 == 0 ? place % 32 : width - 1 - place % 32;
  const int owner = __ffs(__ballot_sync(0xffffffffu, lane < width && rank == wanted)) - 1;
  item = {{0, 0, 0}, first + owner, static_cast<int>(blockIdx.x) % problem.kv_heads, 0, 0};
  if (__shfl_sync(0xffffffffu, keys, owner) <= 0) return true;
  item.sequence = read_sequence(problem, item.index);
  item.last_segment = count_segments(item.sequence);
  return true;
}

// Finds the item with number `index`; returns false past the last item. kClusters: `index` is the
// cluster's number, and the item is this block's segment, which may be empty.
template <FewRowsSplit kSplit>
__device__ __forceinline__ bool find_item(const Problem& problem, WorkCursor& cursor, int index,
                                          WorkItem& item) {
  if constexpr (kSplit == FewRowsSplit::kSequences) return assign_sequence(problem, index, item);
  int within = 0;
  item.index = cursor.find(problem, index, within, [&](const Sequence& sequence) {
    if (sequence.queries == 0) return 0;
    return (kSplit == FewRowsSplit::kSegments ? count_segments(sequence) : 1) * problem.kv_heads;
  });
  if (item.index < 0) return false;
  item.sequence = read_sequence(problem, item.index);
  item.head = within % problem.kv_heads;
  item.first_segment = kSplit == FewRowsSplit::kClusters ? static_cast<int>(cluster_rank())
                                                         : within / problem.kv_heads;
  item.last_segment = min(item.first_segment + 1, count_segments(item.sequence));
  return true;
}

__device__ __forceinline__ KeyRange keys_of(const WorkItem& item, int first_segment,
                                            int last_segment) {
  const int keys = item.sequence.keys();
  return {item.index,
          item.head,
          item.sequence.first_token,
          keys,
          first_segment * kSegmentBlocks,
          min(last_segment * kSegmentBlocks, divide_up(keys, kBlock))};
}

// A thread's outputs with the maxima and sums of its rows, for one segment or several merged
// segments.
template <int kHeadDim, int kRows, bool kFp8>
struct ItemResult {
  using Walk = FewRowsWalk<kHeadDim, kRows, kFp8>;
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

  __device__ __forceinline__ void join(const ItemResult& later, float c) {
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

  // Writes the result to this block's shared memory at `address`. The thread of the same number in
  // the cluster's first block reads it.
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

  // Reads the result that block `rank` of the cluster wrote by share().
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

// Stores outputs of rows whose keys all lie in the item, and partial results of rows with further
// keys; rows without keys in the item store nothing. Lanes 4 apart swap values, so that each lane
// holds neighbouring columns of one row: pairs 8 columns apart, or with FP8 (where a lane's two
// columns are neighbours) four columns.
template <int kHeadDim, int kRows, bool kFp8>
__device__ __forceinline__ void store_result(const Problem& problem, const WorkItem& item,
                                             const int (&positions)[kRows / 4],
                                             const ItemResult<kHeadDim, kRows, kFp8>& merged) {
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
    if constexpr (kFp8) {
#pragma unroll
      for (int x = 0; x < 2 * (kHeadDim / 64); x += 2) {
        const float2 first = pairs[x], second = pairs[x + 1];
        pairs[x] = make_float2(first.x, second.x);
        pairs[x + 1] = make_float2(first.y, second.y);
      }
    }
    const int position = odd ? positions[2 * g + 1] : positions[2 * g];
    const float maximum = odd ? merged.maximum[2 * g + 1] : merged.maximum[2 * g];
    const float sum = odd ? merged.sum[2 * g + 1] : merged.sum[2 * g];
    if (position < item.first_segment * kAttentionSegmentKeys) continue;
    const int row = 8 * g + lane % 4 * 2 + (odd ? 1 : 0);
    constexpr int kNext = kFp8 ? 2 : 8;  // columns from pair to pair
    const int column = static_cast<int>(threadIdx.x / 32) * 16 + lane / 8 * (kFp8 ? 4 : 2);
    if (item.first_segment > 0 || position >= item.last_segment * kAttentionSegmentKeys) {
      const int64_t at = partial_row(problem, item.first_segment, item.sequence, item.head, row);
      if (tells_state) problem.partial_state[at] = make_float2(maximum, sum);
#pragma unroll
      for (int x = 0; x < 2 * (kHeadDim / 64); ++x) {
        *reinterpret_cast<float2*>(problem.partial_output + at * kHeadDim + column + x / 2 * 64 +
                                   x % 2 * kNext) = pairs[x];
      }
      continue;
    }
    const int64_t token = item.sequence.first_token + row / problem.group;
    const int head = item.head * problem.group + row % problem.group;
    if (problem.lse != nullptr && tells_state) {
      problem.lse[token * problem.query_heads + head] = log_sum_exp(maximum, sum, problem.scale);
    }
    const float inverse = __frcp_rn(sum);
#pragma unroll
    for (int x = 0; x < 2 * (kHeadDim / 64); ++x) {
      *reinterpret_cast<uint32_t*>(problem.out + token * problem.out_stride + head * kHeadDim +
                                   column + x / 2 * 64 + x % 2 * kNext) =
          finish_pair(pairs[x].x, pairs[x].y, inverse);
    }
  }
}

}  // namespace slimexx::kernels::attention
