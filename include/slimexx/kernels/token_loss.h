// The loss of a token, its derivatives and its metrics. Shared by policy_loss on the CPU and the
// CUDA kernel; compiles without CUDA. Only exp and expm1 differ between CPU and GPU. Comparisons
// are written so that NaN and Inf take the same branch on both.
#pragma once
#include <cmath>
#include <cstdint>

#include "slimexx/kernels/both_sides.h"
#include "slimexx/kernels/policy_loss_args.h"

namespace slimexx::kernels {

// Returns the KL estimate of d = log p - log p_base. If `unbiased`, the estimate is multiplied by
// `ratio` = p / p_old, and the derivative includes that factor. low_var is clamped to [-10, 10]
// afterwards.
SLX_BOTH_SIDES KlValue estimate_kl(KlKind kind, float d, bool unbiased, float ratio) {
  KlValue kl;
  if (kind == KlKind::kK1) {
    kl = {d, 1.0f};
  } else if (kind == KlKind::kK2) {
    kl = {d * d / 2, d};
  } else {
    // Near d = 0, where a run starts, exp(-d) - 1 would lose all digits; expm1 does not.
    const float e = expm1f(-d);
    kl = {e + d, -e};
  }
  if (unbiased) kl = {kl.value * ratio, (kl.derivative + kl.value) * ratio};
  // The value is never below 0. The test is not `value > 10`, so that it also catches NaN.
  if (kind == KlKind::kLowVar && !(kl.value <= 10)) kl = {10, 0};
  return kl;
}

// Whether a token's loss needs the mean log-ratio of its sequence.
SLX_BOTH_SIDES bool takes_sequence_means(const PolicyLossOptions& o) {
  return o.kind == LossKind::kGspo || (o.use_opsm && o.kind != LossKind::kSft);
}

struct TokenTerm {
  // The derivative is with respect to this token's log p; kGspo: without the path through the
  // ratio.
  float loss = 0, derivative = 0;
  float ratio_derivative = 0;  // kGspo: with respect to the sequence's mean log-ratio
  bool clipped_low = false, clipped_high = false;
};

// NaN stays NaN.
SLX_BOTH_SIDES float clamp_to(float x, float low, float high) {
  return x < low ? low : (high < x ? high : x);
}

// The clipped surrogate and its derivative with respect to the log-ratio.
SLX_BOTH_SIDES TokenTerm clipped_surrogate(float ratio, float advantage,
                                           const PolicyLossOptions& o) {
  TokenTerm term;
  if (advantage == 0) return term;  // 0 even if the ratio overflows
  const float clipped = clamp_to(ratio, 1 - o.eps_clip, 1 + o.eps_clip_high);
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

SLX_BOTH_SIDES TokenTerm cispo_term(float ratio, float advantage, float log_prob,
                                    const PolicyLossOptions& o) {
  const float clipped = clamp_to(ratio, 1 - o.eps_clip, 1 + o.eps_clip_high);
  TokenTerm term;
  term.loss = -clipped * advantage * log_prob;
  term.derivative = -clipped * advantage;
  term.clipped_low = ratio < clipped;
  term.clipped_high = ratio > clipped;
  return term;
}

// Processes the tokens of one batch in any order; the caller collects the sums.
class TokenPass {
 public:
  SLX_BOTH_SIDES explicit TokenPass(const PolicyLossArgs& args) : a_(args), o_(args.options) {}

  SLX_BOTH_SIDES float log_ratio(int64_t r) const { return a_.log_probs[r] - old_log_prob(r); }

  // Writes the row's derivatives and adds to the metrics; returns the weighted derivative with
  // respect to the sequence's mean log-ratio (kGspo). The mean is used only if
  // takes_sequence_means.
  SLX_BOTH_SIDES float run(int64_t r, float sequence_log_ratio) {
    const float weight = a_.weights[r];
    const double w = weight;
    const float token_log_ratio = log_ratio(r);
    const float shared_log_ratio =
        o_.kind == LossKind::kGspo ? sequence_log_ratio : token_log_ratio;
    const float ratio = expf(shared_log_ratio);
    TokenTerm term = token_term(r, ratio);
    if (has_drifted(r, sequence_log_ratio)) {
      term = {};
      sum(LossMetric::kOpsmClipFraction) += w;
    }
    if (o_.tis != TisMode::kOff) scale_by_importance(r, w, term);
    sum(LossMetric::kTokens) += 1;
    sum(LossMetric::kPgLoss) += w * term.loss;
    sum(LossMetric::kLoss) += w * term.loss;
    sum(LossMetric::kClipFractionLow) += term.clipped_low ? w : 0;
    sum(LossMetric::kClipFractionHigh) += term.clipped_high ? w : 0;
    sum(LossMetric::kClipFraction) += term.clipped_low || term.clipped_high ? w : 0;
    sum(LossMetric::kPpoKl) += -w * shared_log_ratio;
    sum(LossMetric::kRatio) += w * ratio;
    if (a_.entropies != nullptr) {
      sum(LossMetric::kEntropy) += w * a_.entropies[r];
      sum(LossMetric::kLoss) += -w * o_.entropy_coef * a_.entropies[r];
    }
    if (o_.use_kl) {
      const KlValue kl = estimate_kl(o_.kl_kind, a_.log_probs[r] - a_.ref_log_probs[r],
                                     o_.unbiased_kl, expf(token_log_ratio));
      sum(LossMetric::kKlLoss) += w * kl.value;
      sum(LossMetric::kLoss) += w * o_.kl_coef * kl.value;
      term.derivative += o_.kl_coef * kl.derivative;
    }
    if (a_.rollout_log_probs != nullptr)
      sum(LossMetric::kLogProbAbsDiff) += w * compare_with_rollout(r);
    a_.dlog_probs[r] = weight * term.derivative;
    if (a_.dentropies != nullptr) a_.dentropies[r] = -weight * o_.entropy_coef;
    return weight * term.ratio_derivative;
  }

  // For a masked token: no gradient. With compare_masked its log-prob is still compared.
  SLX_BOTH_SIDES void skip(int64_t r) {
    a_.dlog_probs[r] = 0;
    if (a_.dentropies != nullptr) a_.dentropies[r] = 0;
    if (o_.compare_masked && a_.rollout_log_probs != nullptr) compare_with_rollout(r);
  }

  double sums[kNumLossMetrics] = {};

 private:
  SLX_BOTH_SIDES double& sum(LossMetric metric) { return sums[static_cast<int>(metric)]; }

  SLX_BOTH_SIDES float old_log_prob(int64_t r) const {
    return (a_.old_log_probs != nullptr ? a_.old_log_probs : a_.log_probs)[r];
  }

  SLX_BOTH_SIDES bool has_drifted(int64_t r, float sequence_log_ratio) const {
    return o_.use_opsm && o_.kind != LossKind::kSft && a_.advantages[r] < 0 &&
           -sequence_log_ratio > o_.opsm_delta;
  }

  SLX_BOTH_SIDES TokenTerm token_term(int64_t r, float ratio) const {
    TokenTerm term;
    const float log_prob = a_.log_probs[r];
    if (o_.kind == LossKind::kSft) {
      term.loss = -log_prob;
      term.derivative = -1;
      return term;
    }
    const float advantage = a_.advantages[r];
    if (o_.kind == LossKind::kCispo) return cispo_term(ratio, advantage, log_prob, o_);
    term = clipped_surrogate(ratio, advantage, o_);
    if (o_.kind == LossKind::kGspo) {
      term.ratio_derivative = term.derivative;
      term.derivative = 0;
    }
    return term;
  }

  // Truncated importance sampling: the factor is the trainer's probability divided by the engine's,
  // without gradient.
  SLX_BOTH_SIDES void scale_by_importance(int64_t r, double w, TokenTerm& term) {
    const float raw = expf(old_log_prob(r) - a_.rollout_log_probs[r]);
    const bool outside = raw < o_.tis_clip_low || raw > o_.tis_clip;
    float factor = clamp_to(raw, o_.tis_clip_low, o_.tis_clip);
    if (o_.tis == TisMode::kMask) factor = outside ? 0 : raw;
    sum(LossMetric::kTis) += w * raw;
    sum(LossMetric::kTisAbs) += w * fabsf(raw - 1);
    sum(LossMetric::kTisClipFraction) += outside ? w : 0;
    term.loss *= factor;
    term.derivative *= factor;
    term.ratio_derivative *= factor;
  }

  // Returns |log p - rollout log p|.
  SLX_BOTH_SIDES double compare_with_rollout(int64_t r) {
    const double difference =
        fabs(static_cast<double>(a_.log_probs[r]) - static_cast<double>(a_.rollout_log_probs[r]));
    sum(LossMetric::kComparedTokens) += 1;
    sum(LossMetric::kLogProbMismatches) += difference != 0;
    double& largest = sum(LossMetric::kLogProbMaxDiff);
    largest = fmax(largest, difference);  // NaN does not count
    return difference;
  }

  const PolicyLossArgs& a_;
  const PolicyLossOptions& o_;
};

}  // namespace slimexx::kernels
