#include "policy_loss.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace slimexx::ops {
namespace {

// The value is never below 0. Not written as value > 10, so that Inf and NaN of an overflow end
// here too.
KlValue clamp_low_var(KlValue kl) { return kl.value <= 10 ? kl : KlValue{10, 0}; }

}  // namespace

KlValue estimate_kl(KlKind kind, float d) {
  switch (kind) {
    case KlKind::kK1:
      return {d, 1.0f};
    case KlKind::kK2:
      return {d * d / 2, d};
    case KlKind::kK3: {
      // expm1: near d = 0, where a run starts, exp(-d) - 1 would have lost all digits.
      const float e = std::expm1(-d);
      return {e + d, -e};
    }
    case KlKind::kLowVar:
      return clamp_low_var(estimate_kl(KlKind::kK3, d));
  }
  return {0, 0};
}

KlValue estimate_kl_unbiased(KlKind kind, float d, float ratio) {
  const KlValue kl = estimate_kl(kind == KlKind::kLowVar ? KlKind::kK3 : kind, d);
  const KlValue weighted = {kl.value * ratio, (kl.derivative + kl.value) * ratio};
  return kind == KlKind::kLowVar ? clamp_low_var(weighted) : weighted;
}

namespace cpu {
namespace {

float at(const Tensor& t, int64_t r) { return t.f32()[r]; }

struct TokenTerm {
  float loss = 0, derivative = 0;  // by log p of this token, the ratio's path for kGspo excluded
  float ratio_derivative = 0;      // kGspo: by the sequence's mean log-ratio
  bool clipped_low = false, clipped_high = false;
};

// The clipped surrogate at ratio r = exp(log_ratio); its derivative by log_ratio.
TokenTerm clipped_surrogate(float log_ratio, float advantage, const PolicyLossOptions& o) {
  TokenTerm term;
  if (advantage == 0) return term;  // also where the ratio overflows
  const float ratio = std::exp(log_ratio);
  const float clipped = std::clamp(ratio, 1 - o.eps_clip, 1 + o.eps_clip_high);
  const float plain = -ratio * advantage, bounded = -clipped * advantage;
  term.loss = std::max(plain, bounded);
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

TokenTerm cispo_term(float log_ratio, float advantage, float log_prob, const PolicyLossOptions& o) {
  const float ratio = std::exp(log_ratio);
  const float clipped = std::clamp(ratio, 1 - o.eps_clip, 1 + o.eps_clip_high);
  TokenTerm term;
  term.loss = -clipped * advantage * log_prob;
  term.derivative = -clipped * advantage;
  term.clipped_low = ratio < clipped;
  term.clipped_high = ratio > clipped;
  return term;
}

class LossPass {
 public:
  LossPass(Tensor dlog_probs, Tensor dentropies, Tensor metrics, const PolicyLossRows& rows,
           const PolicyLossOptions& options)
      : dlog_probs_(dlog_probs),
        dentropies_(dentropies),
        sums_(metrics.data<double>()),
        rows_(rows),
        o_(options) {}

  void run_sample(int64_t begin, int64_t end) {
    const float sequence_log_ratio = o_.kind == LossKind::kGspo ? mean_log_ratio(begin, end) : 0;
    float sequence_derivative = 0;
    for (int64_t r = begin; r < end; ++r) {
      dlog_probs_.f32()[r] = 0;
      if (dentropies_.defined()) dentropies_.f32()[r] = 0;
      if (at(rows_.mask, r) == 0) continue;
      sequence_derivative += run_token(r, sequence_log_ratio);
    }
    if (o_.kind != LossKind::kGspo) return;
    // Every masked token moves the sequence's mean log-ratio by 1 / (number of tokens).
    const float share = sequence_derivative / mask_sum(begin, end);
    for (int64_t r = begin; r < end; ++r) {
      if (at(rows_.mask, r) != 0) dlog_probs_.f32()[r] += share;
    }
  }

 private:
  float old_log_prob(int64_t r) const {
    return at(rows_.old_log_probs.defined() ? rows_.old_log_probs : rows_.log_probs, r);
  }
  float mask_sum(int64_t begin, int64_t end) const {
    float sum = 0;
    for (int64_t r = begin; r < end; ++r) sum += at(rows_.mask, r);
    return std::max(sum, 1.0f);
  }
  float mean_log_ratio(int64_t begin, int64_t end) const {
    float sum = 0;
    for (int64_t r = begin; r < end; ++r) {
      if (at(rows_.mask, r) != 0) sum += at(rows_.log_probs, r) - old_log_prob(r);
    }
    return sum / mask_sum(begin, end);
  }
  void add(LossMetric metric, double value) { sums_[static_cast<size_t>(metric)] += value; }

  TokenTerm token_term(int64_t r, float log_ratio) const {
    const float log_prob = at(rows_.log_probs, r);
    if (o_.kind == LossKind::kSft) return {.loss = -log_prob, .derivative = -1};
    const float advantage = at(rows_.advantages, r);
    if (o_.kind == LossKind::kCispo) return cispo_term(log_ratio, advantage, log_prob, o_);
    TokenTerm term = clipped_surrogate(log_ratio, advantage, o_);
    if (o_.kind == LossKind::kGspo) std::swap(term.derivative, term.ratio_derivative);
    return term;
  }

  // Weight of truncated importance sampling: the trainer's over the engine's probability, no
  // gradient.
  float importance_weight(int64_t r, double w) {
    const float raw = std::exp(old_log_prob(r) - at(rows_.rollout_log_probs, r));
    const bool outside = raw < o_.tis_clip_low || raw > o_.tis_clip;
    add(LossMetric::kTis, w * raw);
    add(LossMetric::kTisAbs, w * std::abs(raw - 1));
    add(LossMetric::kTisClipFraction, outside ? w : 0);
    if (o_.tis == TisMode::kMask) return outside ? 0 : raw;
    return std::clamp(raw, o_.tis_clip_low, o_.tis_clip);
  }

  float add_kl(int64_t r, float ratio, double w) {
    const float d = at(rows_.log_probs, r) - at(rows_.ref_log_probs, r);
    const KlValue kl =
        o_.unbiased_kl ? estimate_kl_unbiased(o_.kl_kind, d, ratio) : estimate_kl(o_.kl_kind, d);
    add(LossMetric::kKlLoss, w * kl.value);
    add(LossMetric::kLoss, w * o_.kl_coef * kl.value);
    return o_.kl_coef * kl.derivative;
  }

  void compare_with_rollout(int64_t r, double w) {
    const double difference =
        std::abs(double{at(rows_.log_probs, r)} - double{at(rows_.rollout_log_probs, r)});
    add(LossMetric::kLogProbAbsDiff, w * difference);
    add(LossMetric::kLogProbMismatches, difference != 0);
    auto& largest = sums_[static_cast<size_t>(LossMetric::kLogProbMaxDiff)];
    largest = std::max(largest, difference);
  }

  // Returns the weighted derivative by the sequence's mean log-ratio (kGspo).
  float run_token(int64_t r, float sequence_log_ratio) {
    const double w = at(rows_.weights, r);
    const float token_log_ratio = at(rows_.log_probs, r) - old_log_prob(r);
    const float log_ratio = o_.kind == LossKind::kGspo ? sequence_log_ratio : token_log_ratio;
    TokenTerm term = token_term(r, log_ratio);
    if (o_.tis != TisMode::kOff) {
      const float factor = importance_weight(r, w);
      term.loss *= factor;
      term.derivative *= factor;
      term.ratio_derivative *= factor;
    }
    add(LossMetric::kTokens, 1);
    add(LossMetric::kPgLoss, w * term.loss);
    add(LossMetric::kLoss, w * term.loss);
    add(LossMetric::kClipFractionLow, term.clipped_low ? w : 0);
    add(LossMetric::kClipFractionHigh, term.clipped_high ? w : 0);
    add(LossMetric::kClipFraction, term.clipped_low || term.clipped_high ? w : 0);
    add(LossMetric::kPpoKl, -w * log_ratio);
    add(LossMetric::kRatio, w * std::exp(log_ratio));
    if (rows_.entropies.defined()) {
      add(LossMetric::kEntropy, w * at(rows_.entropies, r));
      add(LossMetric::kLoss, -w * o_.entropy_coef * at(rows_.entropies, r));
    }
    if (o_.use_kl) term.derivative += add_kl(r, std::exp(token_log_ratio), w);
    if (rows_.rollout_log_probs.defined()) compare_with_rollout(r, w);
    dlog_probs_.f32()[r] = static_cast<float>(w) * term.derivative;
    if (dentropies_.defined()) dentropies_.f32()[r] = -static_cast<float>(w) * o_.entropy_coef;
    return static_cast<float>(w) * term.ratio_derivative;
  }

  Tensor dlog_probs_, dentropies_;
  double* sums_;
  const PolicyLossRows& rows_;
  const PolicyLossOptions& o_;
};

}  // namespace

void policy_loss(Tensor dlog_probs, Tensor dentropies, Tensor metrics, const PolicyLossRows& rows,
                 const PolicyLossOptions& options) {
  LossPass pass(dlog_probs, dentropies, metrics, rows, options);
  for (size_t s = 0; s + 1 < rows.cu_rows.size(); ++s)
    pass.run_sample(rows.cu_rows[s], rows.cu_rows[s + 1]);
}

}  // namespace cpu
}  // namespace slimexx::ops
