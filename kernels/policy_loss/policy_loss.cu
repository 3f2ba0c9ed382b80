// One block a segment of rows: kSegmentRows rows, or a whole sequence for kGspo, whose tokens share
// a ratio. Each block leaves its metrics in the workspace; a last block adds them up. All sums in
// double: a thread over its rows ascending, an exchange tree over a warp, warps ascending, then
// segments in the same way.
#include <cuda_runtime.h>

#include "kernels/policy_loss/token_loss.cuh"

namespace slimexx::kernels {
namespace {

using namespace policy_loss_detail;

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kSegmentRows = 512;

__device__ __forceinline__ double join(int metric, double a, double b) {
  return metric == kLogProbMaxDiff ? fmax(a, b) : a + b;
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
  x = join_warp(kLoss, x);
  __syncthreads();
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  double sum = 0;
  for (int w = 0; w < kWarps; ++w) sum += parts[w];
  return sum;
}

class TokenPass {
 public:
  __device__ explicit TokenPass(const PolicyLossArgs& args) : o_(args) {}

  __device__ float log_ratio(int64_t r) const { return o_.log_probs[r] - old_log_prob(r); }

  // Writes the row's derivatives and adds to the metrics; returns the weighted derivative by the
  // sequence's mean log-ratio (kGspo).
  __device__ float run(int64_t r, float sequence_log_ratio) {
    const float weight = o_.weights[r];
    const double w = weight;
    const float token_log_ratio = log_ratio(r);
    const float shared_log_ratio = o_.kind == kGspo ? sequence_log_ratio : token_log_ratio;
    const float ratio = expf(shared_log_ratio);
    TokenTerm term = token_term(r, ratio);
    if (o_.tis != kOff) scale_by_importance(r, w, term);
    sums[kTokens] += 1;
    sums[kPgLoss] += w * term.loss;
    sums[kLoss] += w * term.loss;
    sums[kClipFractionLow] += term.clipped_low ? w : 0;
    sums[kClipFractionHigh] += term.clipped_high ? w : 0;
    sums[kClipFraction] += term.clipped_low || term.clipped_high ? w : 0;
    sums[kPpoKl] += -w * shared_log_ratio;
    sums[kRatio] += w * ratio;
    if (o_.entropies != nullptr) {
      sums[kEntropy] += w * o_.entropies[r];
      sums[kLoss] += -w * o_.entropy_coef * o_.entropies[r];
    }
    if (o_.use_kl) {
      const KlValue kl =
          estimate_kl(o_, o_.log_probs[r] - o_.ref_log_probs[r], expf(token_log_ratio));
      sums[kKlLoss] += w * kl.value;
      sums[kLoss] += w * o_.kl_coef * kl.value;
      term.derivative += o_.kl_coef * kl.derivative;
    }
    if (o_.rollout_log_probs != nullptr) compare_with_rollout(r, w);
    o_.dlog_probs[r] = weight * term.derivative;
    if (o_.dentropies != nullptr) o_.dentropies[r] = -weight * o_.entropy_coef;
    return weight * term.ratio_derivative;
  }

  __device__ void skip(int64_t r) const {
    o_.dlog_probs[r] = 0;
    if (o_.dentropies != nullptr) o_.dentropies[r] = 0;
  }

  double sums[kNumMetrics] = {};

 private:
  __device__ float old_log_prob(int64_t r) const {
    return (o_.old_log_probs != nullptr ? o_.old_log_probs : o_.log_probs)[r];
  }

  __device__ TokenTerm token_term(int64_t r, float ratio) const {
    TokenTerm term;
    const float log_prob = o_.log_probs[r];
    if (o_.kind == kSft) {
      term.loss = -log_prob;
      term.derivative = -1;
      return term;
    }
    const float advantage = o_.advantages[r];
    if (o_.kind == kCispo) return cispo_term(ratio, advantage, log_prob, o_);
    term = clipped_surrogate(ratio, advantage, o_);
    if (o_.kind == kGspo) {
      term.ratio_derivative = term.derivative;
      term.derivative = 0;
    }
    return term;
  }

  __device__ void scale_by_importance(int64_t r, double w, TokenTerm& term) {
    const ImportanceWeight weight =
        importance_weight(old_log_prob(r) - o_.rollout_log_probs[r], o_);
    sums[kTis] += w * weight.raw;
    sums[kTisAbs] += w * fabsf(weight.raw - 1);
    sums[kTisClipFraction] += weight.outside ? w : 0;
    term.loss *= weight.factor;
    term.derivative *= weight.factor;
    term.ratio_derivative *= weight.factor;
  }

  __device__ void compare_with_rollout(int64_t r, double w) {
    const double difference =
        fabs(static_cast<double>(o_.log_probs[r]) - static_cast<double>(o_.rollout_log_probs[r]));
    sums[kLogProbAbsDiff] += w * difference;
    sums[kLogProbMismatches] += difference != 0;
    sums[kLogProbMaxDiff] = fmax(sums[kLogProbMaxDiff], difference);  // NaN does not count
  }

  const PolicyLossArgs& o_;
};

__global__ void __launch_bounds__(kThreads) run_segments(PolicyLossArgs args, double* partials) {
  const bool by_sequence = args.kind == kGspo;
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
  if (by_sequence) {
    // Every masked token moves the sequence's mean log-ratio by 1 / (number of tokens).
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

// Warp m adds up metric m.
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
  return a.log_probs != nullptr && a.mask != nullptr && a.weights != nullptr &&
         a.dlog_probs != nullptr && a.metrics != nullptr &&
         (a.advantages != nullptr || a.kind == kSft) && (a.cu_rows != nullptr || a.kind != kGspo) &&
         (a.ref_log_probs != nullptr || !a.use_kl) &&
         (a.rollout_log_probs != nullptr || a.tis == kOff);
}

}  // namespace

size_t policy_loss_workspace(int64_t rows, int64_t sequences) {
  const int64_t chunks = count_segments(rows, sequences, false);
  return static_cast<size_t>(chunks > sequences ? chunks : sequences) * kNumMetrics *
         sizeof(double);
}

cudaError_t policy_loss(const PolicyLossArgs& args, void* workspace, cudaStream_t stream) {
  if (!is_complete(args)) return cudaErrorInvalidValue;
  const int64_t segments = count_segments(args.rows, args.sequences, args.kind == kGspo);
  if (segments == 0) return cudaSuccess;
  auto* partials = static_cast<double*>(workspace);
  run_segments<<<static_cast<unsigned>(segments), kThreads, 0, stream>>>(args, partials);
  if (const cudaError_t error = cudaGetLastError()) return error;
  add_metrics<<<1, kNumMetrics * 32, 0, stream>>>(args.metrics, partials, segments);
  return cudaGetLastError();
}

}  // namespace slimexx::kernels
