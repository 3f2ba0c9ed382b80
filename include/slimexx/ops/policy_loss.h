// Token losses of policy optimisation and supervised training, with their derivatives, over the R
// selected rows of a microbatch. Formulas: docs/howto/estimator.md and the slime documentation's
// names.
#pragma once
#include <cstdint>
#include <span>

#include "slimexx/ops/ops.h"

namespace slimexx::ops {

enum class LossKind : uint8_t {
  kClip,   // max(-r A, -clip(r) A), optionally dual-clipped          (PPO, GRPO)
  kGspo,   // the same with the sequence's mean log-ratio in r        (arXiv:2507.18071, token-wise
           // aggregation)
  kCispo,  // -stop_gradient(clip(r)) A log p                         (arXiv:2506.13585)
  kSft,    // -log p
};
enum class KlKind : uint8_t { kK1, kK2, kK3, kLowVar };
enum class TisMode : uint8_t { kOff, kTruncate, kMask };  // truncated importance sampling; IcePop

struct PolicyLossOptions {
  LossKind kind = LossKind::kClip;
  float eps_clip = 0.2f, eps_clip_high = 0.2f;
  float eps_clip_c = 0.0f;  // dual clip for negative advantages; 0: off
  float entropy_coef = 0.0f;
  bool use_kl = false;  // needs ref_log_probs
  KlKind kl_kind = KlKind::kLowVar;
  float kl_coef = 0.0f;
  bool unbiased_kl = false;     // KL term times p / p_old
  TisMode tis = TisMode::kOff;  // needs rollout_log_probs
  float tis_clip = 2.0f, tis_clip_low = 0.0f;
};

// All [R] f32 unless said. Undefined where not needed.
struct PolicyLossRows {
  Tensor log_probs, entropies;
  Tensor old_log_probs;  // undefined: the current ones, without gradient (ratio exactly 1)
  Tensor ref_log_probs;
  Tensor rollout_log_probs;
  Tensor advantages;
  Tensor mask;     // 0 or 1
  Tensor weights;  // mask over the global batch's denominator: the loss is sum weights * token loss
  std::span<const int32_t> cu_rows = {};  // [S+1] host: rows of each sample, for kGspo
  Tensor device_cu_rows = {};             // the same as i32 on CUDA, where that kind needs it
};

// KL estimate of d = log p - log p_base and its derivative by log p; low_var is clamped to [-10,
// 10].
struct KlValue {
  float value, derivative;
};
KlValue estimate_kl(KlKind kind, float d);
// The same times the ratio p / p_old, through which the derivative runs too; low_var is clamped
// after that.
KlValue estimate_kl_unbiased(KlKind kind, float d, float ratio);

enum class LossMetric : uint8_t {  // weighted sums, so that they add over microbatches and ranks
  kLoss,
  kPgLoss,
  kClipFraction,
  kClipFractionLow,
  kClipFractionHigh,
  kPpoKl,
  kKlLoss,
  kEntropy,
  kRatio,
  kTis,
  kTisAbs,
  kTisClipFraction,
  kLogProbAbsDiff,
  // the rest are not weighted: maximum of |log p - rollout log p|, tokens where they differ, tokens
  kLogProbMaxDiff,
  kLogProbMismatches,
  kTokens,
  kCount
};
inline constexpr int64_t kNumLossMetrics = static_cast<int64_t>(LossMetric::kCount);

// (scratch) Writes dlog_probs[R] and dentropies[R] (may be undefined when entropy_coef is 0); adds
// to metrics[kNumLossMetrics] f64 (kLogProbMaxDiff by maximum).
void policy_loss(Stream stream, Tensor dlog_probs, Tensor dentropies, Tensor metrics,
                 const PolicyLossRows& rows, const PolicyLossOptions& options);

}  // namespace slimexx::ops
