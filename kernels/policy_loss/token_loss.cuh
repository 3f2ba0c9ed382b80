// The loss of one token and its derivatives, f32: the formulas of ops/policy_loss.h with the
// comparisons written as its CPU implementation has them, so that NaN and Inf take the same way.
#pragma once
#include <cuda_runtime_api.h>

#include "slimexx/kernels/policy_loss.h"

namespace slimexx::kernels::policy_loss_detail {

// ops::LossKind, ops::KlKind, ops::TisMode, ops::LossMetric.
enum LossKind : int { kClip, kGspo, kCispo, kSft };
enum KlKind : int { kK1, kK2, kK3, kLowVar };
enum TisMode : int { kOff, kTruncate, kMask };
enum Metric : int {
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
  kLogProbMaxDiff,
  kLogProbMismatches,
  kTokens,
  kNumMetrics
};

struct TokenTerm {
  float loss = 0, derivative = 0;  // by log p of this token, the ratio's path for kGspo excluded
  float ratio_derivative = 0;      // kGspo: by the sequence's mean log-ratio
  bool clipped_low = false, clipped_high = false;
};

// NaN stays NaN.
__device__ __forceinline__ float clamp(float x, float low, float high) {
  return x < low ? low : (high < x ? high : x);
}

__device__ __forceinline__ TokenTerm clipped_surrogate(float ratio, float advantage,
                                                       const PolicyLossArgs& o) {
  TokenTerm term;
  if (advantage == 0) return term;  // also where the ratio overflows
  const float clipped = clamp(ratio, 1 - o.eps_clip, 1 + o.eps_clip_high);
  const float plain = -ratio * advantage, bounded = -clipped * advantage;
  term.loss = plain < bounded ? bounded : plain;
  if (bounded > plain) {
    term.clipped_low = ratio < clipped;
    term.clipped_high = ratio > clipped;
  } else {
    term.derivative = plain;
  }
  if (o.eps_clip_c > 0 && advantage < 0 && term.loss > -o.eps_clip_c * advantage) {
    term.loss = -o.eps_clip_c * advantage;
    term.derivative = 0;
  }
  return term;
}

__device__ __forceinline__ TokenTerm cispo_term(float ratio, float advantage, float log_prob,
                                                const PolicyLossArgs& o) {
  const float clipped = clamp(ratio, 1 - o.eps_clip, 1 + o.eps_clip_high);
  TokenTerm term;
  term.loss = -clipped * advantage * log_prob;
  term.derivative = -clipped * advantage;
  term.clipped_low = ratio < clipped;
  term.clipped_high = ratio > clipped;
  return term;
}

struct KlValue {
  float value, derivative;
};

__device__ __forceinline__ KlValue plain_kl(int kind, float d) {
  if (kind == kK1) return {d, 1.0f};
  if (kind == kK2) return {d * d / 2, d};
  // expm1: near d = 0, where a run starts, exp(-d) - 1 would have lost all digits.
  const float e = expm1f(-d);
  return {e + d, -e};
}

// `ratio` p / p_old where the estimate is unbiased, else 1 with no derivative of its own.
__device__ __forceinline__ KlValue estimate_kl(const PolicyLossArgs& o, float d, float ratio) {
  KlValue kl = plain_kl(o.kl_kind, d);
  if (o.unbiased_kl) kl = {kl.value * ratio, (kl.derivative + kl.value) * ratio};
  // Not value > 10: Inf and NaN of an overflow end here too.
  if (o.kl_kind == kLowVar && !(kl.value <= 10)) kl = {10, 0};
  return kl;
}

// Weight of truncated importance sampling: the trainer's over the engine's probability.
struct ImportanceWeight {
  float raw, factor;
  bool outside;
};
__device__ __forceinline__ ImportanceWeight importance_weight(float log_ratio,
                                                              const PolicyLossArgs& o) {
  const float raw = expf(log_ratio);
  const bool outside = raw < o.tis_clip_low || raw > o.tis_clip;
  if (o.tis == kMask) return {raw, outside ? 0 : raw, outside};
  return {raw, clamp(raw, o.tis_clip_low, o.tis_clip), outside};
}

}  // namespace slimexx::kernels::policy_loss_detail
