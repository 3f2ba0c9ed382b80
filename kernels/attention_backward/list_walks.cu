// Lists the blocks of all sequences, the longest walks first. Thread blocks take walks in that
// order and so finish at about the same time.
#include "kernels/attention_backward/problem.cuh"

namespace slimexx::kernels::attention_gradient {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;  // warps per thread block; a warp lists one block of rows

// The sequence whose padded rows contain `row`; the last sequence for rows after all of them.
__device__ __forceinline__ int find_sequence(const Problem& problem, int64_t row) {
  int low = 0, high = problem.sequences - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (padded_start(problem.cu_seqlens[middle], middle) <= row) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

__device__ __forceinline__ int count_blocks(const Problem& problem, int sequence) {
  return (problem.cu_seqlens[sequence + 1] - problem.cu_seqlens[sequence] + kBlockRows - 1) /
         kBlockRows;
}

// Stores a walk at its place in the list: after all walks with more blocks, and after walks with
// the same number of blocks in earlier sequences.
__device__ __forceinline__ void list_walk(const Problem& problem, int sequence, int blocks) {
  int before = 0;
  for (int other = threadIdx.x % 32; other < problem.sequences; other += 32) {
    const int theirs = count_blocks(problem, other);
    before += max(0, theirs - blocks) + (other < sequence && theirs >= blocks);
  }
  before = __reduce_add_sync(0xffffffffu, before);
  if (threadIdx.x % 32 != 0) return;
  const int first_token = problem.cu_seqlens[sequence];
  problem.walks[before] = make_int4(first_token, problem.cu_seqlens[sequence + 1] - first_token,
                                    static_cast<int>(padded_start(first_token, sequence)), blocks);
}

__device__ __forceinline__ void reset_counters(const Problem& problem) {
  int walks = 0;
  for (int sequence = threadIdx.x % 32; sequence < problem.sequences; sequence += 32) {
    walks += count_blocks(problem, sequence);
  }
  walks = __reduce_add_sync(0xffffffffu, walks);
  if (threadIdx.x % 32 == 0) *problem.counters = {0, 0, static_cast<uint32_t>(walks)};
}

__global__ void __launch_bounds__(kThreads) list_walks(const __grid_constant__ Problem problem) {
  const int64_t row = (static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32) * kBlockRows;
  if (row >= problem.padded_tokens) return;
  if (row == 0) reset_counters(problem);
  const int sequence = find_sequence(problem, row);
  const int first_token = problem.cu_seqlens[sequence];
  const int64_t position = row - padded_start(first_token, sequence);
  if (position < 0 || first_token + position >= problem.cu_seqlens[sequence + 1]) return;
  list_walk(problem, sequence, static_cast<int>(position / kBlockRows) + 1);
}

}  // namespace

cudaError_t launch_list_walks(const Launch& launch, cudaStream_t stream) {
  const int64_t blocks = launch.problem.padded_tokens / kBlockRows;
  list_walks<<<static_cast<unsigned>((blocks + kWarps - 1) / kWarps), kThreads, 0, stream>>>(
      launch.problem);
  return cudaGetLastError();
}

}  // namespace slimexx::kernels::attention_gradient
