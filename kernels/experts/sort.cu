// A stable counting sort of the choices by expert. One thread block sorts few choices (order.cuh).
// For many, a first kernel counts the experts in each run of choices, and then each thread block
// sorts one run.
#include "kernels/common/early_launch.cuh"
#include "kernels/common/sizes.h"
#include "kernels/experts/order.cuh"

namespace slimexx::kernels {
namespace {

using namespace experts;

constexpr int kThreads = 512, kWarps = kThreads / 32;
constexpr int64_t kLeastRun = 2048, kMostRuns = 64;
constexpr unsigned kAll = 0xffffffff;
constexpr int kBins = static_cast<int>(kMostExperts);

struct SortProblem {
  const int32_t* ids;
  int32_t* counts;  // [runs, experts]
  int32_t *offsets, *choices, *tokens, *rows;
  int count, run, runs, experts, top_k;
};

int64_t run_of(int64_t count) {
  return divide_up(count < kLeastRun * kMostRuns ? kLeastRun : divide_up(count, kMostRuns),
                   kThreads) *
         kThreads;
}

// Counts the run's choices per expert into bins [experts].
__device__ void count_run(const SortProblem& p, int run, int* bins) {
  for (int e = threadIdx.x; e < p.experts; e += kThreads) bins[e] = 0;
  __syncthreads();
  const int first = run * p.run, end = min(first + p.run, p.count);
  for (int i = first + threadIdx.x; i < end; i += kThreads) atomicAdd(bins + p.ids[i], 1);
  __syncthreads();
}

__global__ void __launch_bounds__(kThreads) count_kernel(const SortProblem p) {
  enter_kernel();
  __shared__ int bins[kBins];
  count_run(p, blockIdx.x, bins);
  for (int e = threadIdx.x; e < p.experts; e += kThreads) {
    p.counts[blockIdx.x * p.experts + e] = bins[e];
  }
}

// On entry totals [experts] are the routed rows per expert; on return the first row of each expert.
// The first block also writes the offsets.
__device__ void sum_totals(const SortProblem& p, int* totals) {
  if (threadIdx.x >= 32) return;
  const int lane = threadIdx.x;
  int before = 0;
  for (int first = 0; first < p.experts; first += 32) {
    const int expert = first + lane;
    const int own = expert < p.experts ? totals[expert] : 0;
    int sum = own;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(kAll, sum, step);
      if (lane >= step) sum += other;
    }
    if (expert < p.experts) {
      totals[expert] = before + sum - own;
      if (blockIdx.x == 0) p.offsets[expert] = before + sum - own;
    }
    before += __shfl_sync(kAll, sum, 31);
  }
  if (blockIdx.x == 0 && lane == 0) p.offsets[p.experts] = before;
}

// Each warp places a part of the run: it counts the part's choices, finds where its rows of each
// expert begin, and walks the part again to place the rows.
__global__ void __launch_bounds__(kThreads) place_kernel(const SortProblem p) {
  enter_kernel();
  __shared__ int next[kBins];             // the first row of each expert
  __shared__ int earlier[kBins];          // choices of earlier runs
  __shared__ int of_warp[kWarps][kBins];  // choices of a part; then the next row of each expert
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int* own = of_warp[warp];
  for (int e = lane; e < p.experts; e += 32) own[e] = 0;
  __syncwarp();
  const int part = p.run / kWarps, first = blockIdx.x * p.run + warp * part;
  const auto expert_of = [&](int choice) { return choice < p.count ? p.ids[choice] : -1; };
  for (int choice = first + lane; choice < first + part; choice += 32) {
    const int expert = expert_of(choice);
    const Peers peers = find_peers(expert);
    if (peers.leads) own[expert] += peers.all;
    __syncwarp();
  }
  __syncthreads();
  for (int e = threadIdx.x; e < p.experts; e += kThreads) {
    int total = 0, before = 0;
    for (int run = 0; run < p.runs; ++run) {
      const int theirs = p.counts[run * p.experts + e];
      total += theirs;
      before += run < static_cast<int>(blockIdx.x) ? theirs : 0;
    }
    next[e] = total;
    earlier[e] = before;
  }
  __syncthreads();
  sum_totals(p, next);
  __syncthreads();
  for (int e = threadIdx.x; e < p.experts; e += kThreads) {
    int row = next[e] + earlier[e];
    for (int w = 0; w < kWarps; ++w) {
      const int count = of_warp[w][e];
      of_warp[w][e] = row;
      row += count;
    }
  }
  __syncthreads();
  for (int choice = first + lane; choice < first + part; choice += 32) {
    const int expert = expert_of(choice);
    const Peers peers = find_peers(expert);
    if (expert >= 0) {
      const int row = own[expert] + peers.before;
      p.rows[choice] = row;
      p.choices[row] = choice;
      p.tokens[row] = choice / p.top_k;
    }
    __syncwarp();
    if (peers.leads) own[expert] += peers.all;
    __syncwarp();
  }
}

constexpr int kOwn = static_cast<int>(kLeastRun) / kOrderThreads;  // choices per thread

__global__ void __launch_bounds__(kOrderThreads)
    order_kernel(const Order order, const int32_t* ids) {
  enter_layer_kernel();
  __shared__ OrderShared shared;
  order_choices<kOwn>(order, shared, [ids](int choice) { return ids[choice]; });
}

}  // namespace

size_t sort_by_expert_workspace(int64_t count, int64_t experts) {
  const int64_t runs = divide_up(count, run_of(count));
  return runs > 1 ? static_cast<size_t>(runs * experts) * sizeof(int32_t) : 0;
}

const char* sort_by_expert(int32_t* offsets, int32_t* choices, int32_t* tokens, int32_t* rows,
                           const int32_t* ids, int64_t count, int64_t top_k, int64_t experts,
                           void* workspace, cudaStream_t stream) {
  if (experts < 1 || experts > kMostExperts) {
    return "sort_by_expert: the number of experts must be from 1 to 384";
  }
  if (count < 0 || count > INT32_MAX / 2 || top_k < 1)
    return "sort_by_expert: too many choices, or top_k is below 1";
  cudaError_t error = cudaSuccess;
  if (count == 0) {
    error = cudaMemsetAsync(offsets, 0, static_cast<size_t>(experts + 1) * 4, stream);
    return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
  }
  if (count <= kLeastRun) {
    const Order order{offsets,
                      choices,
                      tokens,
                      rows,
                      static_cast<int>(count),
                      static_cast<int>(experts),
                      static_cast<int>(top_k)};
    error = launch_early(order_kernel, {dim3(1), kOrderThreads}, stream, order, ids);
    return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
  }
  SortProblem p{};
  p.ids = ids;
  p.offsets = offsets;
  p.choices = choices;
  p.tokens = tokens;
  p.rows = rows;
  p.count = static_cast<int>(count);
  p.run = static_cast<int>(run_of(count));
  p.runs = static_cast<int>(divide_up(count, run_of(count)));
  p.experts = static_cast<int>(experts);
  p.top_k = static_cast<int>(top_k);
  const LaunchShape shape{dim3(static_cast<unsigned>(p.runs)), kThreads};
  p.counts = static_cast<int32_t*>(workspace);
  error = launch_early(count_kernel, shape, stream, p);
  if (error == cudaSuccess) error = launch_early(place_kernel, shape, stream, p);
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace slimexx::kernels
