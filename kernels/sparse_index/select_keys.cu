// Exact top-k of a row's scores (radix select). Three histograms over 11, 11 and 10 bits of the
// scores find the k-th largest score. Then one pass lists the keys with higher scores and, among
// equal scores, those at the lowest positions. A thread block takes a row; if rows are few, a
// cluster takes it. Each warp owns a contiguous piece of the row, so that places in the list follow
// from counts. Counts are integers, so the order of atomics does not change a bit.
//
// Cost of a row of 32,768 keys: five reads of 128 KB, the first from L2 and the other four mostly
// from L1, take 10,000 clocks at 64 B/clk. The first histogram also has 1,024 warp-wide atomic
// additions to shared memory. Many scores have the same highest bits, so each bin has four copies,
// chosen by lane, to reduce conflicts within a warp.
#include <climits>

#include "kernels/common/cluster.cuh"
#include "kernels/common/device.h"
#include "kernels/common/early_launch.cuh"
#include "kernels/common/mbarrier.cuh"
#include "kernels/sparse_index/runs.cuh"

namespace slimexx::kernels {
namespace sparse_index {
namespace {

constexpr int kThreads = 1024, kWarps = kThreads / 32;
constexpr int kBinBits = 11, kBins = 1 << kBinBits, kCopies = 4;
constexpr int kBinsPerThread = kBins / kThreads;
static_assert(kBinsPerThread == 2);
// Thread blocks per SM (two without clusters), and loads in flight per thread.
constexpr int blocks_at_once(int cluster) { return cluster == 1 ? 2 : 1; }
constexpr int loads_ahead(int cluster) { return 8 / blocks_at_once(cluster); }
// Fewest keys per thread block for which a larger cluster pays off.
constexpr int64_t kLeastBlockKeys = 4096;

struct Problem {
  Rows rows;
  const float* scores;
  int32_t* selected;
  int64_t score_stride;
  int k;
};

// Maps scores to integers in reverse order: the highest score has the lowest rank. -0 counts as 0,
// NaN as -inf.
__device__ __forceinline__ uint32_t rank_of(float score) {
  if (isnan(score)) return 0xff800000u;
  const uint32_t bits = __float_as_uint(score + 0.0f);
  return bits & 0x80000000u ? bits : bits ^ 0x7fffffffu;
}

struct Counts {
  uint32_t below, equal;  // number of ranks below the threshold, and equal to it
};

struct Memory {
  alignas(16) uint32_t bins[kBins * kCopies];
  alignas(8) uint32_t own_bins[kBins];  // the block's bins, copies added up, for the cluster
  alignas(8) Counts block_counts;       // the block's counts, for the cluster
  uint32_t warp_sums[kWarps];
  Counts warp_counts[kWarps];
  uint32_t found_bin, found_before;
};

__device__ __forceinline__ uint2 read_peer_pair(const void* own, uint32_t rank) {
  uint2 v;
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %2, %3;\n"
      "ld.shared::cluster.v2.u32 {%0, %1}, [remote];\n"
      "}\n"
      : "=r"(v.x), "=r"(v.y)
      : "r"(shared_address(own)), "r"(rank)
      : "memory");
  return v;
}

// This warp's piece of a row.
template <int kCluster>
struct Piece {
  static constexpr int kAhead = loads_ahead(kCluster);
  const float* scores;
  int begin, end;

  // Calls f(position, rank, exists) for 32 neighbouring positions at a time, one per lane, in
  // ascending order. `exists` is false past the piece's end.
  template <class F>
  __device__ __forceinline__ void for_each(const F& f) const {
    const int lane = threadIdx.x % 32;
    for (int first = begin; first < end; first += 32 * kAhead) {
      float score[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int position = first + 32 * i + lane;
        score[i] = position < end ? scores[position] : 0.0f;
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int position = first + 32 * i + lane;
        f(position, rank_of(score[i]), position < end);
      }
    }
  }
};

// One step of the radix select: among the ranks whose bits above `shift + bits` equal `prefix`,
// finds the value of bits [shift, shift + bits) of the `wanted`-th lowest (counted from 1). Then
// makes `wanted` relative to the ranks with that value. Called by all threads of the cluster.
template <int kCluster>
__device__ __forceinline__ uint32_t find_digit(Memory& memory, const Piece<kCluster>& piece,
                                               uint32_t prefix, int shift, int bits,
                                               uint32_t& wanted) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  for (int i = thread; i < kBins * kCopies / 4; i += kThreads) {
    reinterpret_cast<uint4*>(memory.bins)[i] = uint4{0, 0, 0, 0};
  }
  __syncthreads();
  const int above = shift + bits;
  const uint32_t mask = (1u << bits) - 1;
  piece.for_each([&](int, uint32_t rank, bool exists) {
    if (!exists || (above < 32 && rank >> above != prefix)) return;
    atomicAdd(&memory.bins[(rank >> shift & mask) * kCopies + lane % kCopies], 1u);
  });
  __syncthreads();
  uint32_t own[kBinsPerThread];
#pragma unroll
  for (int i = 0; i < kBinsPerThread; ++i) {
    const uint4 c = reinterpret_cast<const uint4*>(memory.bins)[thread * kBinsPerThread + i];
    own[i] = c.x + c.y + c.z + c.w;
  }
  if constexpr (kCluster > 1) {
    reinterpret_cast<uint2*>(memory.own_bins)[thread] = {own[0], own[1]};
    sync_cluster();
    own[0] = own[1] = 0;
    for (uint32_t rank = 0; rank < kCluster; ++rank) {
      const uint2 peer = read_peer_pair(memory.own_bins + thread * kBinsPerThread, rank);
      own[0] += peer.x;
      own[1] += peer.y;
    }
    sync_cluster();  // all blocks have read own_bins
  }
  uint32_t through = own[0] + own[1];
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const uint32_t other = __shfl_up_sync(0xffffffffu, through, step);
    if (lane >= step) through += other;
  }
  if (lane == 31) memory.warp_sums[warp] = through;
  __syncthreads();
  uint32_t before = through - own[0] - own[1];
  before += __reduce_add_sync(0xffffffffu, lane < warp ? memory.warp_sums[lane] : 0);
#pragma unroll
  for (int i = 0; i < kBinsPerThread; ++i) {
    if (before < wanted && wanted <= before + own[i]) {
      memory.found_bin = static_cast<uint32_t>(thread * kBinsPerThread + i);
      memory.found_before = before;
    }
    before += own[i];
  }
  __syncthreads();
  wanted -= memory.found_before;
  return memory.found_bin;
}

// Counts over everything before this warp's piece, across all blocks of the cluster.
template <int kCluster>
__device__ __forceinline__ Counts count_before(Memory& memory, const Piece<kCluster>& piece,
                                               uint32_t threshold) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  uint32_t below = 0, equal = 0;
  piece.for_each([&](int, uint32_t rank, bool exists) {
    below += exists && rank < threshold ? 1 : 0;
    equal += exists && rank == threshold ? 1 : 0;
  });
  below = __reduce_add_sync(0xffffffffu, below);
  equal = __reduce_add_sync(0xffffffffu, equal);
  if (lane == 0) memory.warp_counts[warp] = {below, equal};
  __syncthreads();
  const Counts other = memory.warp_counts[lane];
  Counts before = {__reduce_add_sync(0xffffffffu, lane < warp ? other.below : 0),
                   __reduce_add_sync(0xffffffffu, lane < warp ? other.equal : 0)};
  if constexpr (kCluster > 1) {
    if (warp == kWarps - 1 && lane == 0) {
      memory.block_counts = {before.below + below, before.equal + equal};
    }
    sync_cluster();
    for (uint32_t rank = 0; rank < cluster_rank(); ++rank) {
      const uint2 peer = read_peer_pair(&memory.block_counts, rank);
      before.below += peer.x;
      before.equal += peer.y;
    }
    sync_cluster();  // no block may exit while another reads its shared memory
  }
  return before;
}

template <int kCluster>
__global__ void __launch_bounds__(kThreads, blocks_at_once(kCluster))
    select_row_keys(const Problem p) {
  __shared__ Memory memory;
  enter_kernel();
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int row = static_cast<int>(blockIdx.x) / kCluster;
  const int block = kCluster > 1 ? static_cast<int>(cluster_rank()) : 0;
  int32_t* selected = p.selected + static_cast<int64_t>(row) * p.k;
  const int batch_row = p.rows.first_row + row;
  const int sequence = find_sequence(p.rows, batch_row);
  const SequenceRun run = read_run(p.rows, sequence);
  // Rows past the end of the last sequence are padding and have no keys.
  const int keys =
      batch_row < p.rows.cu_seqlens[sequence + 1] ? run.position + row - run.row + 1 : 0;
  if (keys <= p.k) {
    for (int i = block * kThreads + thread; i < p.k; i += kCluster * kThreads) {
      selected[i] = i < keys ? i : -1;
    }
    return;
  }
  const int own_keys = divide_up(divide_up(keys, kCluster * kWarps), 32) * 32;
  const int begin = min(keys, (block * kWarps + thread / 32) * own_keys);
  const Piece<kCluster> piece{p.scores + row * p.score_stride, begin, min(keys, begin + own_keys)};
  auto wanted = static_cast<uint32_t>(p.k);
  uint32_t threshold = find_digit<kCluster>(memory, piece, 0, 21, 11, wanted);
  threshold = threshold << 11 | find_digit<kCluster>(memory, piece, threshold, 10, 11, wanted);
  threshold = threshold << 10 | find_digit<kCluster>(memory, piece, threshold, 0, 10, wanted);
  // Take all ranks below the threshold, and the first `wanted` of those equal to it.
  Counts before = count_before<kCluster>(memory, piece, threshold);
  const uint32_t lower = (1u << lane) - 1;
  piece.for_each([&](int position, uint32_t rank, bool exists) {
    const uint32_t below = __ballot_sync(0xffffffffu, exists && rank < threshold);
    const uint32_t equal = __ballot_sync(0xffffffffu, exists && rank == threshold);
    const uint32_t equals = before.equal + __popc(equal & lower);
    const bool is_taken = (below >> lane & 1) != 0 || ((equal >> lane & 1) != 0 && equals < wanted);
    if (is_taken) selected[before.below + __popc(below & lower) + min(equals, wanted)] = position;
    before.below += __popc(below);
    before.equal += __popc(equal);
  });
}

bool is_served(const KeySelection& p) {
  return has_served_rows(p.rows) && p.k > 0 && p.k < INT32_MAX && p.scores != nullptr &&
         p.selected != nullptr && p.score_stride >= 0 && p.rows.rows <= INT_MAX / 8;
}

}  // namespace
}  // namespace sparse_index

using namespace sparse_index;

cudaError_t select_keys(const KeySelection& selection, cudaStream_t stream) {
  if (selection.rows.rows == 0) return cudaSuccess;
  if (!is_served(selection)) return cudaErrorInvalidValue;
  int sm_count = 0;
  if (const cudaError_t error = count_multiprocessors(sm_count)) return error;
  const Problem problem{describe_rows(selection.rows), selection.scores, selection.selected,
                        selection.score_stride, static_cast<int>(selection.k)};
  const int64_t rows = selection.rows.rows;
  unsigned cluster = 1;
  while (cluster < 8 && rows * cluster * 2 <= sm_count &&
         selection.rows.max_key_len / (cluster * 2) >= kLeastBlockKeys) {
    cluster *= 2;
  }
  const LaunchShape shape{dim3(static_cast<unsigned>(rows) * cluster), kThreads, 0, cluster};
  switch (cluster) {
    case 1:
      return launch_early(select_row_keys<1>, shape, stream, problem);
    case 2:
      return launch_early(select_row_keys<2>, shape, stream, problem);
    case 4:
      return launch_early(select_row_keys<4>, shape, stream, problem);
    default:
      return launch_early(select_row_keys<8>, shape, stream, problem);
  }
}

}  // namespace slimexx::kernels
