// Rows between the windows of ranks. Inputs are read where they are, results are written where they
// belong: a rank needs room in its window for its own rows alone, however many come to its experts.
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

constexpr int kOffsetsAt = static_cast<int>(kPeerControlBytes);
static_assert(kOffsetsAt + 4 * (kMostExperts + 1) <= kShownRowsBegin);
constexpr int kMostRuns = static_cast<int>(kMostExperts + kMostPeers);  // held copies x ranks
constexpr int kRunThreads = 512;                                        // one a run
constexpr int kCopyThreads = 512;
constexpr int kChunks = 8;  // of 16 bytes, that a lane has under way

static_assert(kMostRuns <= kRunThreads);

// In PeerRuns::memory. Of run q: the received row that it begins with, and the routed row of its
// rank; then where each rank shows what.
struct RunTable {
  int* starts;       // [runs + 1]
  int* firsts;       // [runs]
  ShownRows* shown;  // [ranks]
  __host__ __device__ RunTable(void* memory, int runs, int ranks)
      : shown(static_cast<ShownRows*>(memory)) {
    starts = reinterpret_cast<int*>(shown + ranks);
    firsts = starts + runs + 1;
  }
};

struct ShowArgs {
  ShownRows shown;
  const int* offsets;
  const int* tokens;
  const int4* inputs;
  int64_t rows, chunks;  // of inputs
  int copies;
};

__global__ void __launch_bounds__(kCopyThreads)
    show_kernel(const PeerWindows windows, const ShowArgs a) {
  char* window = windows.at[windows.rank];
  const int64_t first = blockIdx.x * int64_t{kCopyThreads} + threadIdx.x;
  const int64_t step = int64_t{gridDim.x} * kCopyThreads;
  if (first == 0) *reinterpret_cast<ShownRows*>(window + kHeaderAt) = a.shown;
  for (int64_t i = first; i <= a.copies; i += step)
    reinterpret_cast<int*>(window + kOffsetsAt)[i] = a.offsets[i];
  for (int64_t i = first; i < a.rows; i += step)
    reinterpret_cast<int*>(window + a.shown.tokens_at)[i] = a.tokens[i];
  for (int64_t i = first; i < a.chunks; i += step)
    reinterpret_cast<int4*>(window + a.shown.inputs_at)[i] = a.inputs[i];
}

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
    find_runs_kernel(const PeerWindows windows, const PeerRuns runs, int* offsets) {
  __shared__ int of_warps[kRunThreads / 32];
  meet(windows);
  const int q = static_cast<int>(threadIdx.x), ranks = windows.size;
  const int num_runs = static_cast<int>(runs.copies) * ranks;
  const RunTable table(runs.memory, num_runs, ranks);
  if (q < ranks) {
    const auto* shown = reinterpret_cast<const volatile ShownRows*>(windows.at[q] + kHeaderAt);
    table.shown[q] = {shown->tokens_at, shown->inputs_at, shown->returned_at};
  }
  int count = 0;
  if (q < num_runs) {
    const auto* theirs = reinterpret_cast<const volatile int*>(windows.at[q % ranks] + kOffsetsAt) +
                         runs.first_copy + q / ranks;
    const int first = theirs[0];
    count = theirs[1] - first;
    table.firsts[q] = first;
  }
  const int start = sum_before(count, of_warps);
  if (q <= num_runs) table.starts[q] = start;
  if (q <= num_runs && q % ranks == 0) offsets[q / ranks] = start;
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

// A row by a warp. kToPeers: rows of y are written to where they were asked for; else y is written.
template <bool kToPeers>
__global__ void __launch_bounds__(kCopyThreads)
    move_rows_kernel(const PeerWindows windows, const PeerRuns runs, int4* y, int most,
                     int row_chunks) {
  __shared__ int starts[kMostRuns + 1];
  const int ranks = windows.size, num_runs = static_cast<int>(runs.copies) * ranks;
  const RunTable table(runs.memory, num_runs, ranks);
  for (int i = threadIdx.x; i <= num_runs; i += kCopyThreads) starts[i] = table.starts[i];
  __syncthreads();
  const int lane = threadIdx.x % 32;
  const int step = static_cast<int>(gridDim.x) * (kCopyThreads / 32);
  const int end = min(starts[num_runs], most);
  for (int row = blockIdx.x + (threadIdx.x / 32) * gridDim.x; row < end; row += step) {
    const int run = find_run(starts, num_runs, row), rank = run % ranks;
    const int routed = table.firsts[run] + row - starts[run];
    char* window = windows.at[rank];
    const ShownRows& shown = table.shown[rank];
    int4* there =
        reinterpret_cast<int4*>(window + shown.returned_at) + int64_t{routed} * row_chunks;
    if (!kToPeers) {
      const int token = reinterpret_cast<const int*>(window + shown.tokens_at)[routed];
      there = reinterpret_cast<int4*>(window + shown.inputs_at) + int64_t{token} * row_chunks;
    }
    int4* here = y + int64_t{row} * row_chunks;
    const int4* from = kToPeers ? here : there;
    int4* to = kToPeers ? there : here;
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

const char* find_fault(const PeerWindows& windows, const PeerRuns& runs) {
  if (const char* fault = peers::find_fault(windows)) return fault;
  if (runs.copies < 1 || runs.copies * windows.size >= kMostRuns || runs.memory == nullptr) {
    return "peer rows: too many copies of experts on a rank";
  }
  return nullptr;
}

template <bool kToPeers>
const char* move_rows(const PeerWindows& windows, const PeerRuns& runs, void* y, int64_t most,
                      int64_t width, cudaStream_t stream) {
  if (const char* fault = find_fault(windows, runs)) return fault;
  if (width < 8 || width % 8 != 0 || width > kMaxRowWidth) {
    return "peer rows: the width must be a multiple of 8, at most 16384";
  }
  if (most < 0 || most > INT32_MAX / 2 || !is_aligned(y, 16)) {
    return "peer rows: too many rows, or not 16-byte aligned";
  }
  if (most == 0) return nullptr;
  move_rows_kernel<kToPeers><<<2 * kMultiprocessors, kCopyThreads, 0, stream>>>(
      windows, runs, static_cast<int4*>(y), static_cast<int>(most), static_cast<int>(width / 8));
  return name_error(cudaGetLastError());
}

}  // namespace

const char* show_rows(const PeerWindows& windows, const ShownRows& shown, const int32_t* offsets,
                      int64_t copies, const int32_t* tokens, int64_t rows, const void* inputs,
                      int64_t inputs_bytes, cudaStream_t stream) {
  if (const char* fault = peers::find_fault(windows)) return fault;
  if (copies < 1 || copies > kMostExperts) return "peer rows: too many copies of experts";
  if (inputs_bytes % 16 != 0 || shown.inputs_at % 16 != 0 || shown.returned_at % 16 != 0 ||
      !is_aligned(inputs, 16)) {
    return "peer rows: inputs must be 16-byte aligned";
  }
  const ShowArgs args{shown,
                      offsets,
                      tokens,
                      static_cast<const int4*>(inputs),
                      rows,
                      inputs_bytes / 16,
                      static_cast<int>(copies)};
  const int64_t most = args.chunks > rows ? args.chunks : rows;
  const int64_t blocks = divide_up(most + 1, kCopyThreads);
  const int64_t most_blocks = 2 * kMultiprocessors;
  show_kernel<<<static_cast<unsigned>(blocks < most_blocks ? blocks : most_blocks), kCopyThreads, 0,
                stream>>>(windows, args);
  return name_error(cudaGetLastError());
}

int64_t peer_runs_bytes(int64_t copies, int64_t ranks) {
  return static_cast<int64_t>(sizeof(ShownRows)) * ranks + (2 * copies * ranks + 1) * 4;
}

const char* find_peer_runs(const PeerWindows& windows, const PeerRuns& runs, int32_t* offsets,
                           cudaStream_t stream) {
  if (const char* fault = find_fault(windows, runs)) return fault;
  find_runs_kernel<<<1, kRunThreads, 0, stream>>>(windows, runs, offsets);
  return name_error(cudaGetLastError());
}

const char* fetch_peer_rows(const PeerWindows& windows, const PeerRuns& runs, void* y, int64_t most,
                            int64_t width, cudaStream_t stream) {
  return move_rows<false>(windows, runs, y, most, width, stream);
}

const char* return_peer_rows(const PeerWindows& windows, const PeerRuns& runs, const void* y,
                             int64_t most, int64_t width, cudaStream_t stream) {
  return move_rows<true>(windows, runs, const_cast<void*>(y), most, width, stream);
}

}  // namespace slimexx::kernels
