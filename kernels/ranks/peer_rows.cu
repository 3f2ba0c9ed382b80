// Dispatch and combine of routed rows between ranks. Inputs are read in place, and results are
// written to their destination, without further copies. A token that several experts of this rank
// receive is read once.
//
// Row counts stay on the device: grids have a fixed size, and a thread finds the run of a row by
// bisection in the table of runs.
#include <cstdio>

#include "kernels/common/device.h"
#include "kernels/common/sizes.h"
#include "kernels/ranks/peer_barrier.cuh"
#include "slimexx/kernels/limits.h"

namespace slimexx::kernels {
namespace {

using namespace peers;

static_assert(kHeaderAt + sizeof(ShownRows) <= kBlocksAt);
constexpr int kMostRuns = static_cast<int>(kMostExperts + kMostPeers);  // held copies x ranks
constexpr int kRunThreads = 512;                                        // one per run
constexpr int kCopyThreads = 512;
constexpr int kChunks = 8;  // loads of 16 bytes that a lane has in flight

static_assert(kMostRuns <= kRunThreads);

// The layout of PeerRuns::memory: first the ShownRows of each rank; then, for each run q, its first
// received row and its first routed row at the sender.
struct RunTable {
  ShownRows* shown;  // [ranks]
  int* starts;       // [runs + 1]
  int* firsts;       // [runs]
  __device__ RunTable(void* memory, int runs, int ranks)
      : shown(static_cast<ShownRows*>(memory)),
        starts(reinterpret_cast<int*>(shown + ranks)),
        firsts(starts + runs + 1) {}
};

__device__ __forceinline__ void show(const PeerRegions& ranks, const ShownRows& shown) {
  *reinterpret_cast<ShownRows*>(ranks.control[ranks.rank] + kHeaderAt) = shown;
}

// Reads what another rank wrote while this kernel ran: volatile, so that no value comes from a
// stale cache line.
__device__ __forceinline__ ShownRows read_shown(const PeerRegions& ranks, int rank) {
  const auto* at = reinterpret_cast<const volatile ShownRows*>(ranks.control[rank] + kHeaderAt);
  ShownRows shown;
  shown.offsets_at = at->offsets_at;
  shown.rows_at = at->rows_at;
  shown.tokens = at->tokens;
  shown.top_k = at->top_k;
  for (int i = 0; i < ShownRows::kMostInputs; ++i) shown.inputs_at[i] = at->inputs_at[i];
  shown.returned_at = at->returned_at;
  shown.values_at = at->values_at;
  shown.returned_values_at = at->returned_values_at;
  return shown;
}

// More rows arrived than y has room for. Dropping some would silently give a wrong result, so the
// kernel traps.
__device__ __noinline__ void refuse_rows(int received, int most) {
  printf("slimexx: %d rows of experts were received, but there is room for only %d\n", received,
         most);
  __trap();
}
__device__ __forceinline__ void check_room(int received, int most) {
  if (received > most && blockIdx.x == 0 && threadIdx.x == 0) refuse_rows(received, most);
}

__global__ void show_kernel(const PeerRegions ranks, const ShownRows shown) { show(ranks, shown); }

// Exclusive prefix sum of `count` over the kRunThreads threads of the block.
__device__ __forceinline__ int sum_before(int count, int (&of_warps)[kRunThreads / 32]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int sum = count;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(0xffffffff, sum, step);
    if (lane >= step) sum += other;
  }
  if (lane == 31) of_warps[warp] = sum;
  __syncthreads();
  int before = sum - count;
  for (int w = 0; w < warp; ++w) before += of_warps[w];
  return before;
}

__global__ void __launch_bounds__(kRunThreads)
    find_runs_kernel(const PeerRegions ranks, const ShownRows own, const PeerRuns runs,
                     int* offsets) {
  __shared__ int of_warps[kRunThreads / 32];
  __shared__ int64_t offsets_at[kMostPeers];
  if (threadIdx.x == 0) show(ranks, own);
  __syncthreads();
  meet(ranks);
  const int q = static_cast<int>(threadIdx.x), size = ranks.size;
  const int num_runs = static_cast<int>(runs.copies) * size;
  const RunTable table(runs.memory, num_runs, size);
  if (q < size) {
    table.shown[q] = read_shown(ranks, q);
    offsets_at[q] = table.shown[q].offsets_at;
  }
  __syncthreads();
  int count = 0;
  if (q < num_runs) {
    const int rank = q % size;
    const auto* theirs =
        reinterpret_cast<const volatile int*>(ranks.region[rank] + offsets_at[rank]) +
        runs.first_copy + q / size;
    const int first = theirs[0];
    count = theirs[1] - first;
    table.firsts[q] = first;
  }
  const int start = sum_before(count, of_warps);
  if (q <= num_runs) table.starts[q] = start;
  if (q <= num_runs && q % size == 0) offsets[q / size] = start;
}

// The last of runs [0, count) that begins at or before `row`. If several runs begin at the same
// row, all but the last are empty.
__device__ __forceinline__ int find_run(const int* starts, int count, int row) {
  int low = 0, high = count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (starts[middle] <= row) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// Copy of the run table in shared memory, because threads read the table for every row.
struct NearRuns {
  int starts[kMostRuns + 1], firsts[kMostRuns];
  int first_tokens[kMostPeers + 1];  // first token of each rank, if tokens are numbered in the
                                     // order in which this rank walks them

  // Called by all threads of a block.
  __device__ __forceinline__ void load(const RunTable& table, const PeerRegions& ranks,
                                       int num_runs) {
    for (int i = threadIdx.x; i <= num_runs; i += kCopyThreads) {
      starts[i] = table.starts[i];
      if (i < num_runs) firsts[i] = table.firsts[i];
    }
    if (threadIdx.x == 0) {
      int sum = 0;
      for (int i = 0; i < ranks.size; ++i) {
        first_tokens[i] = sum;
        sum += static_cast<int>(table.shown[rank_at(ranks, i)].tokens);
      }
      first_tokens[ranks.size] = sum;
    }
    __syncthreads();
  }
  // Every rank starts with a different peer, so that all links are busy.
  static __device__ __forceinline__ int rank_at(const PeerRegions& ranks, int i) {
    return ranks.rank + i < ranks.size ? ranks.rank + i : ranks.rank + i - ranks.size;
  }
  // Received row of a rank's routed row; -1 if that row goes to another rank.
  __device__ __forceinline__ int place_of(int routed, int rank, int copies, int ranks) const {
    const int last = (copies - 1) * ranks + rank;
    if (routed < firsts[rank] || routed >= firsts[last] + starts[last + 1] - starts[last])
      return -1;
    int low = 0, high = copies;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (firsts[middle * ranks + rank] <= routed) {
        low = middle;
      } else {
        high = middle;
      }
    }
    const int run = low * ranks + rank;
    return starts[run] + routed - firsts[run];
  }
};

// Dispatch: one warp handles one token; lane j holds the token's choice j.
__global__ void __launch_bounds__(kCopyThreads)
    fetch_rows_kernel(const PeerRegions ranks, const PeerRuns runs, int input, int4* y, int most,
                      int row_chunks) {
  __shared__ NearRuns near;
  const int copies = static_cast<int>(runs.copies), num_runs = copies * ranks.size;
  const RunTable table(runs.memory, num_runs, ranks.size);
  near.load(table, ranks, num_runs);
  check_room(near.starts[num_runs], most);
  const int lane = threadIdx.x % 32;
  const int step = static_cast<int>(gridDim.x) * (kCopyThreads / 32);
  const int first = static_cast<int>(blockIdx.x + (threadIdx.x / 32) * gridDim.x);
  for (int walked = first, turn = 0; walked < near.first_tokens[ranks.size]; walked += step) {
    while (walked >= near.first_tokens[turn + 1]) ++turn;
    const int rank = NearRuns::rank_at(ranks, turn), token = walked - near.first_tokens[turn];
    const ShownRows& shown = table.shown[rank];
    const char* region = ranks.region[rank];
    const int top_k = static_cast<int>(shown.top_k);
    int place = -1;
    if (lane < top_k) {
      const int routed = reinterpret_cast<const int*>(region + shown.rows_at)[token * top_k + lane];
      place = near.place_of(routed, rank, copies, ranks.size);
      if (place >= most) place = -1;
    }
    const unsigned wanted = __ballot_sync(0xffffffff, place >= 0);
    if (wanted == 0) continue;
    const int4* from = reinterpret_cast<const int4*>(region + shown.inputs_at[input]) +
                       int64_t{token} * row_chunks;
    for (int begin = lane; begin - lane < row_chunks; begin += 32 * kChunks) {
      int4 chunks[kChunks];
#pragma unroll
      for (int i = 0; i < kChunks; ++i)
        if (begin + 32 * i < row_chunks) chunks[i] = from[begin + 32 * i];
      for (unsigned left = wanted; left != 0; left &= left - 1) {
        int4* to = y + int64_t{__shfl_sync(0xffffffff, place, __ffs(left) - 1)} * row_chunks;
#pragma unroll
        for (int i = 0; i < kChunks; ++i)
          if (begin + 32 * i < row_chunks) to[begin + 32 * i] = chunks[i];
      }
    }
  }
  const int end = min(near.starts[num_runs], most);
  const int behind = min(most - end, static_cast<int>(kReadBehindExperts));
  for (int row = end + first; row < end + behind; row += step)
    for (int i = lane; i < row_chunks; i += 32) y[int64_t{row} * row_chunks + i] = int4{};
}

// Combine: one warp copies one row of y to the rank that it came from.
__global__ void __launch_bounds__(kCopyThreads)
    return_rows_kernel(const PeerRegions ranks, const PeerRuns runs, const int4* y, int most,
                       int row_chunks) {
  __shared__ int starts[kMostRuns + 1];
  const int num_runs = static_cast<int>(runs.copies) * ranks.size;
  const RunTable table(runs.memory, num_runs, ranks.size);
  for (int i = threadIdx.x; i <= num_runs; i += kCopyThreads) starts[i] = table.starts[i];
  __syncthreads();
  check_room(starts[num_runs], most);
  const int lane = threadIdx.x % 32;
  const int step = static_cast<int>(gridDim.x) * (kCopyThreads / 32);
  const int end = min(starts[num_runs], most);
  for (int row = blockIdx.x + (threadIdx.x / 32) * gridDim.x; row < end; row += step) {
    const int run = find_run(starts, num_runs, row), rank = run % ranks.size;
    const int routed = table.firsts[run] + row - starts[run];
    const int4* from = y + int64_t{row} * row_chunks;
    int4* to = reinterpret_cast<int4*>(ranks.region[rank] + table.shown[rank].returned_at) +
               int64_t{routed} * row_chunks;
    for (int begin = lane; begin < row_chunks; begin += 32 * kChunks) {
      int4 chunks[kChunks];
#pragma unroll
      for (int i = 0; i < kChunks; ++i)
        if (begin + 32 * i < row_chunks) chunks[i] = from[begin + 32 * i];
#pragma unroll
      for (int i = 0; i < kChunks; ++i)
        if (begin + 32 * i < row_chunks) to[begin + 32 * i] = chunks[i];
    }
  }
}

// One thread handles one choice. kToRanks: writes values of y to the ranks that they came from;
// otherwise writes y.
template <bool kToRanks>
__global__ void __launch_bounds__(kCopyThreads)
    move_values_kernel(const PeerRegions ranks, const PeerRuns runs, float* y, int most) {
  __shared__ NearRuns near;
  const int copies = static_cast<int>(runs.copies), num_runs = copies * ranks.size;
  const RunTable table(runs.memory, num_runs, ranks.size);
  near.load(table, ranks, num_runs);
  check_room(near.starts[num_runs], most);
  for (int turn = 0; turn < ranks.size; ++turn) {
    const int rank = NearRuns::rank_at(ranks, turn);
    const ShownRows& shown = table.shown[rank];
    char* region = ranks.region[rank];
    const auto* rows = reinterpret_cast<const int*>(region + shown.rows_at);
    const int choices = static_cast<int>(shown.tokens * shown.top_k);
    for (int i = static_cast<int>(blockIdx.x * kCopyThreads + threadIdx.x); i < choices;
         i += static_cast<int>(gridDim.x) * kCopyThreads) {
      const int place = near.place_of(rows[i], rank, copies, ranks.size);
      if (place < 0 || place >= most) continue;
      if (kToRanks) {
        reinterpret_cast<float*>(region + shown.returned_values_at)[i] = y[place];
      } else {
        y[place] = reinterpret_cast<const float*>(region + shown.values_at)[i];
      }
    }
  }
}

const char* find_fault(const PeerRegions& ranks, const PeerRuns& runs) {
  if (const char* fault = peers::find_fault(ranks)) return fault;
  if (runs.copies < 1 || runs.copies * ranks.size >= kMostRuns || runs.memory == nullptr) {
    return "peer rows: too many copies of experts on a rank";
  }
  return nullptr;
}

const char* find_fault(const ShownRows& shown) {
  bool aligned = shown.returned_at % 16 == 0;
  for (const int64_t at :
       {shown.offsets_at, shown.rows_at, shown.values_at, shown.returned_values_at})
    aligned = aligned && at % 4 == 0;
  for (const int64_t at : shown.inputs_at) aligned = aligned && at % 16 == 0;
  if (!aligned) return "peer rows: published rows must be 16-byte aligned";
  if (shown.tokens < 0 || shown.top_k < 1 || shown.top_k > kMostRoutedTo ||
      shown.tokens * shown.top_k > INT32_MAX / kMostPeers) {
    return "peer rows: too many tokens, or too many choices per token";
  }
  return nullptr;
}

const char* find_fault(const PeerRegions& ranks, const PeerRuns& runs, const void* y, int64_t most,
                       int64_t width) {
  if (const char* fault = find_fault(ranks, runs)) return fault;
  if (width < 8 || width % 8 != 0 || width > kMaxRowWidth) {
    return "peer rows: the width must be a multiple of 8, at most 16384";
  }
  if (most < 0 || most > INT32_MAX / 2 || !is_aligned(y, 16)) {
    return "peer rows: too many rows, or y is not 16-byte aligned";
  }
  return nullptr;
}

template <bool kToRanks>
const char* move_values(const PeerRegions& ranks, const PeerRuns& runs, float* y, int64_t most,
                        cudaStream_t stream) {
  if (const char* fault = find_fault(ranks, runs)) return fault;
  if (most < 0 || most > INT32_MAX / 2) return "peer rows: too many rows";
  if (most == 0) return nullptr;
  move_values_kernel<kToRanks>
      <<<kMultiprocessors, kCopyThreads, 0, stream>>>(ranks, runs, y, static_cast<int>(most));
  return name_error(cudaGetLastError());
}

}  // namespace

const char* show_rows(const PeerRegions& ranks, const ShownRows& shown, cudaStream_t stream) {
  if (const char* fault = peers::find_fault(ranks)) return fault;
  if (const char* fault = find_fault(shown)) return fault;
  show_kernel<<<1, 1, 0, stream>>>(ranks, shown);
  return name_error(cudaGetLastError());
}

const char* find_peer_runs(const PeerRegions& ranks, const ShownRows& shown, const PeerRuns& runs,
                           int32_t* offsets, cudaStream_t stream) {
  if (const char* fault = find_fault(ranks, runs)) return fault;
  if (const char* fault = find_fault(shown)) return fault;
  find_runs_kernel<<<1, kRunThreads, 0, stream>>>(ranks, shown, runs, offsets);
  return name_error(cudaGetLastError());
}

const char* fetch_peer_rows(const PeerRegions& ranks, const PeerRuns& runs, int input, void* y,
                            int64_t most, int64_t width, cudaStream_t stream) {
  if (const char* fault = find_fault(ranks, runs, y, most, width)) return fault;
  if (input < 0 || input >= ShownRows::kMostInputs)
    return "peer rows: the index of the input is out of range";
  if (most == 0) return nullptr;
  fetch_rows_kernel<<<2 * kMultiprocessors, kCopyThreads, 0, stream>>>(
      ranks, runs, input, static_cast<int4*>(y), static_cast<int>(most),
      static_cast<int>(width / 8));
  return name_error(cudaGetLastError());
}

const char* return_peer_rows(const PeerRegions& ranks, const PeerRuns& runs, const void* y,
                             int64_t most, int64_t width, cudaStream_t stream) {
  if (const char* fault = find_fault(ranks, runs, y, most, width)) return fault;
  if (most == 0) return nullptr;
  return_rows_kernel<<<2 * kMultiprocessors, kCopyThreads, 0, stream>>>(
      ranks, runs, static_cast<const int4*>(y), static_cast<int>(most),
      static_cast<int>(width / 8));
  return name_error(cudaGetLastError());
}

const char* fetch_peer_values(const PeerRegions& ranks, const PeerRuns& runs, float* y,
                              int64_t most, cudaStream_t stream) {
  return move_values<false>(ranks, runs, y, most, stream);
}

const char* return_peer_values(const PeerRegions& ranks, const PeerRuns& runs, const float* y,
                               int64_t most, cudaStream_t stream) {
  return move_values<true>(ranks, runs, const_cast<float*>(y), most, stream);
}

}  // namespace slimexx::kernels
