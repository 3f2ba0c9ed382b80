// One block per segment of rows: kSegmentRows rows, or a whole sequence if the loss uses the mean
// log-ratio of a sequence. Each block writes its metrics to the workspace; then one block adds
// them. All sums are in double: a thread adds its rows in ascending order, a warp adds its lanes by
// a tree of shuffles, and the warps are added in ascending order. Then one warp per metric adds the
// segments: each lane in ascending order, then the lanes by a tree of shuffles.
#include "slimexx/kernels/policy_loss.h"

#include <cuda_runtime.h>

#include "slimexx/kernels/token_loss.h"

namespace slimexx::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kSegmentRows = 512;
constexpr int kNumMetrics = static_cast<int>(kNumLossMetrics);

__device__ __forceinline__ double join(int metric, double a, double b) {
  return metric == static_cast<int>(LossMetric::kLogProbMaxDiff) ? fmax(a, b) : a + b;
}

__device__ __forceinline__ double join_warp(int metric, double x) {
  for (int distance = 16; distance > 0; distance /= 2) {
    x = join(metric, x, __shfl_xor_sync(0xffffffffu, x, distance));
  }
  return x;
}

// Sum over the block, in every thread.
__device__ double sum_block(double x) {
  __shared__ double parts[kWarps];
  x = join_warp(static_cast<int>(LossMetric::kLoss), x);
  __syncthreads();
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  double sum = 0;
  for (int w = 0; w < kWarps; ++w) sum += parts[w];
  return sum;
}

__global__ void __launch_bounds__(kThreads) run_segments(PolicyLossArgs args, double* partials) {
  const bool by_sequence = takes_sequence_means(args.options);
  const int64_t segment = blockIdx.x;
  const int64_t begin = by_sequence ? args.cu_rows[segment] : segment * kSegmentRows;
  const int64_t end =
      by_sequence ? args.cu_rows[segment + 1] : min(begin + kSegmentRows, args.rows);
  TokenPass pass(args);
  float sequence_log_ratio = 0, tokens = 1;
  if (by_sequence) {
    double sum = 0, mask_sum = 0;
    for (int64_t r = begin + threadIdx.x; r < end; r += kThreads) {
      mask_sum += args.mask[r];
      if (args.mask[r] != 0) sum += pass.log_ratio(r);
    }
    tokens = fmaxf(static_cast<float>(sum_block(mask_sum)), 1.0f);
    sequence_log_ratio = static_cast<float>(sum_block(sum)) / tokens;
  }
  double sequence_derivative = 0;
  for (int64_t r = begin + threadIdx.x; r < end; r += kThreads) {
    if (args.mask[r] == 0) {
      pass.skip(r);
    } else {
      sequence_derivative += pass.run(r, sequence_log_ratio);
    }
  }
  if (args.options.kind == LossKind::kGspo) {
    // The mean log-ratio has derivative 1 / tokens with respect to each token in the loss mask.
    const float share = static_cast<float>(sum_block(sequence_derivative)) / tokens;
    for (int64_t r = begin + threadIdx.x; r < end; r += kThreads) {
      if (args.mask[r] != 0) args.dlog_probs[r] += share;
    }
  }
  __shared__ double parts[kWarps][kNumMetrics];
#pragma unroll
  for (int m = 0; m < kNumMetrics; ++m) {
    const double sum = join_warp(m, pass.sums[m]);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32][m] = sum;
  }
  __syncthreads();
  const int m = static_cast<int>(threadIdx.x);
  if (m >= kNumMetrics) return;
  double sum = 0;
  for (int w = 0; w < kWarps; ++w) sum = join(m, sum, parts[w][m]);
  partials[segment * kNumMetrics + m] = sum;
}

// Warp m adds metric m over the segments.
__global__ void __launch_bounds__(kNumMetrics * 32)
    add_metrics(double* metrics, const double* partials, int64_t segments) {
  const int m = static_cast<int>(threadIdx.x / 32);
  double sum = 0;
  for (int64_t s = threadIdx.x % 32; s < segments; s += 32) {
    sum = join(m, sum, partials[s * kNumMetrics + m]);
  }
  sum = join_warp(m, sum);
  if (threadIdx.x % 32 == 0) metrics[m] = join(m, metrics[m], sum);
}

int64_t count_segments(int64_t rows, int64_t sequences, bool by_sequence) {
  return by_sequence ? sequences : (rows + kSegmentRows - 1) / kSegmentRows;
}

bool is_complete(const PolicyLossArgs& a) {
  const PolicyLossOptions& o = a.options;
  return a.log_probs != nullptr && a.mask != nullptr && a.weights != nullptr &&
         a.dlog_probs != nullptr && a.metrics != nullptr &&
         (a.advantages != nullptr || o.kind == LossKind::kSft) &&
         (a.cu_rows != nullptr || !takes_sequence_means(o)) &&
         (a.ref_log_probs != nullptr || !o.use_kl) &&
         (a.rollout_log_probs != nullptr || o.tis == TisMode::kOff);
}

}  // namespace

size_t policy_loss_workspace(int64_t rows, int64_t sequences) {
  const int64_t chunks = count_segments(rows, sequences, false);
  return static_cast<size_t>(chunks > sequences ? chunks : sequences) * kNumMetrics *
         sizeof(double);
}

cudaError_t policy_loss(const PolicyLossArgs& args, void* workspace, cudaStream_t stream) {
  if (!is_complete(args)) return cudaErrorInvalidValue;
  const int64_t segments =
      count_segments(args.rows, args.sequences, takes_sequence_means(args.options));
  if (segments == 0) return cudaSuccess;
  auto* partials = static_cast<double*>(workspace);
  run_segments<<<static_cast<unsigned>(segments), kThreads, 0, stream>>>(args, partials);
  if (const cudaError_t error = cudaGetLastError()) return error;
  add_metrics<<<1, kNumMetrics * 32, 0, stream>>>(args.metrics, partials, segments);
  return cudaGetLastError();
}

}  // namespace slimexx::kernels
