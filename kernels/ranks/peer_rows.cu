// Rows between the regions of ranks. Inputs are read where they are, results are written where they
// belong: nothing of either is copied besides.
//
// Counts stay on the device: launches are as wide as the device, and a row's run is found in the
// table of runs by bisection.
#include "kernels/common/device.h"
#include "kernels/common/sizes.h"
#include "kernels/ranks/peer_barrier.cuh"
#include "slimexx/kernels/limits.h"

namespace slimexx::kernels {
namespace {

using namespace peers;

static_assert(kHeaderAt + sizeof(ShownRows) <= kBlocksAt);
constexpr int kMostRuns = static_cast<int>(kMostExperts + kMostPeers);  // held copies x ranks
constexpr int kRunThreads = 512;                                        // one a run
constexpr int kCopyThreads = 512;
constexpr int kChunks = 8;  // of 16 bytes, that a lane has under way

static_assert(kMostRuns <= kRunThreads);

// In PeerRuns::memory. Of run q: the received row that it begins with, and the routed row of its
// rank; before them, where each rank shows what.
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

// What another rank wrote while this kernel ran: no copy of it may be kept near.
__device__ __forceinline__ ShownRows read_shown(const PeerRegions& ranks, int rank) {
  const auto* at = reinterpret_cast<const volatile ShownRows*>(ranks.control[rank] + kHeaderAt);
  ShownRows shown;
  shown.offsets_at = at->offsets_at;
  shown.tokens_at = at->tokens_at;
  for (int i = 0; i < ShownRows::kMostInputs; ++i) shown.inputs_at[i] = at->inputs_at[i];
  shown.returned_at = at->returned_at;
  shown.choices_at = at->choices_at;
  shown.values_at = at->values_at;
  shown.returned_values_at = at->returned_values_at;
  return shown;
}

__global__ void show_kernel(const PeerRegions ranks, const ShownRows shown) { show(ranks, shown); }

// The sum of `count` over the threads before this one; kRunThreads of them.
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

// The last of runs [0, count) that begins at `row` or before it. Of those that begin at one row all
// but the last are empty.
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

// A row by a warp. kToRanks: rows of y are written to where they are waited for; else y is written.
template <bool kToRanks>
__global__ void __launch_bounds__(kCopyThreads)
    move_rows_kernel(const PeerRegions ranks, const PeerRuns runs, int input, int4* y, int most,
                     int row_chunks) {
  __shared__ int starts[kMostRuns + 1];
  const int num_runs = static_cast<int>(runs.copies) * ranks.size;
  const RunTable table(runs.memory, num_runs, ranks.size);
  for (int i = threadIdx.x; i <= num_runs; i += kCopyThreads) starts[i] = table.starts[i];
  __syncthreads();
  const int lane = threadIdx.x % 32;
  const int step = static_cast<int>(gridDim.x) * (kCopyThreads / 32);
  const int end = min(starts[num_runs], most);
  for (int row = blockIdx.x + (threadIdx.x / 32) * gridDim.x; row < end; row += step) {
    const int run = find_run(starts, num_runs, row), rank = run % ranks.size;
    const int routed = table.firsts[run] + row - starts[run];
    char* region = ranks.region[rank];
    const ShownRows& shown = table.shown[rank];
    int64_t at = shown.returned_at, place = routed;
    if (!kToRanks) {
      at = shown.inputs_at[input];
      place = reinterpret_cast<const int*>(region + shown.tokens_at)[routed];
    }
    int4* there = reinterpret_cast<int4*>(region + at) + place * row_chunks;
    int4* here = y + int64_t{row} * row_chunks;
    const int4* from = kToRanks ? here : there;
    int4* to = kToRanks ? there : here;
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

// A value by a thread.
template <bool kToRanks>
__global__ void __launch_bounds__(kCopyThreads)
    move_values_kernel(const PeerRegions ranks, const PeerRuns runs, float* y, int most) {
  __shared__ int starts[kMostRuns + 1];
  const int num_runs = static_cast<int>(runs.copies) * ranks.size;
  const RunTable table(runs.memory, num_runs, ranks.size);
  for (int i = threadIdx.x; i <= num_runs; i += kCopyThreads) starts[i] = table.starts[i];
  __syncthreads();
  const int end = min(starts[num_runs], most);
  for (int row = static_cast<int>(blockIdx.x * kCopyThreads + threadIdx.x); row < end;
       row += static_cast<int>(gridDim.x) * kCopyThreads) {
    const int run = find_run(starts, num_runs, row), rank = run % ranks.size;
    const int routed = table.firsts[run] + row - starts[run];
    char* region = ranks.region[rank];
    const ShownRows& shown = table.shown[rank];
    const int choice = reinterpret_cast<const int*>(region + shown.choices_at)[routed];
    if (kToRanks) {
      reinterpret_cast<float*>(region + shown.returned_values_at)[choice] = y[row];
    } else {
      y[row] = reinterpret_cast<const float*>(region + shown.values_at)[choice];
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
  for (const int64_t at : {shown.offsets_at, shown.tokens_at, shown.choices_at, shown.values_at,
                           shown.returned_values_at})
    aligned = aligned && at % 4 == 0;
  for (const int64_t at : shown.inputs_at) aligned = aligned && at % 16 == 0;
  return aligned ? nullptr : "peer rows: rows that are shown must be 16-byte aligned";
}

template <bool kToRanks>
const char* move_rows(const PeerRegions& ranks, const PeerRuns& runs, int input, void* y,
                      int64_t most, int64_t width, cudaStream_t stream) {
  if (const char* fault = find_fault(ranks, runs)) return fault;
  if (input < 0 || input >= ShownRows::kMostInputs) return "peer rows: no such input";
  if (width < 8 || width % 8 != 0 || width > kMaxRowWidth) {
    return "peer rows: the width must be a multiple of 8, at most 16384";
  }
  if (most < 0 || most > INT32_MAX / 2 || !is_aligned(y, 16)) {
    return "peer rows: too many rows, or not 16-byte aligned";
  }
  if (most == 0) return nullptr;
  move_rows_kernel<kToRanks><<<2 * kMultiprocessors, kCopyThreads, 0, stream>>>(
      ranks, runs, input, static_cast<int4*>(y), static_cast<int>(most),
      static_cast<int>(width / 8));
  return name_error(cudaGetLastError());
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
  return move_rows<false>(ranks, runs, input, y, most, width, stream);
}

const char* return_peer_rows(const PeerRegions& ranks, const PeerRuns& runs, const void* y,
                             int64_t most, int64_t width, cudaStream_t stream) {
  return move_rows<true>(ranks, runs, 0, const_cast<void*>(y), most, width, stream);
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
