// The options, inputs and outputs of a policy loss. Compiles without CUDA. Pointers are to memory
// of the device that computes the loss. Formulas: docs/howto/estimator.md. Names follow slime's
// documentation.
#pragma once
#include <cstdint>

namespace slimexx::kernels {

enum class LossKind : int32_t {
  kClip,   // max(-r A, -clip(r) A), optionally dual-clipped          (PPO, GRPO)
  kGspo,   // kClip with the sequence's mean log-ratio in r           (arXiv:2507.18071, token-wise
           // aggregation)
  kCispo,  // -stop_gradient(clip(r)) A log p                         (arXiv:2506.13585)
  kSft,    // -log p
};
enum class KlKind : int32_t { kK1, kK2, kK3, kLowVar };
enum class TisMode : int32_t { kOff, kTruncate, kMask };  // truncated importance sampling; IcePop

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
  // Off-policy sequence masking: tokens with negative advantage have no policy loss if the mean of
  // log p_old - log p over their sequence is above opsm_delta.
  bool use_opsm = false;
  float opsm_delta = 1e-4f;
  // Masked tokens have a valid rollout log p and are compared too.
  bool compare_masked = false;
};

enum class LossMetric : int32_t {  // weighted sums, so that they add over microbatches and ranks
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
  kOpsmClipFraction,
  kLogProbAbsDiff,
  // The remaining metrics are not weighted. Over the compared tokens: the maximum of |log p -
  // rollout log p|, the number of tokens with a difference, and the number of compared tokens.
  kLogProbMaxDiff,
  kLogProbMismatches,
  kComparedTokens,
  kTokens,  // tokens that are not masked
  kCount
};
inline constexpr int64_t kNumLossMetrics = static_cast<int64_t>(LossMetric::kCount);

// Null if the options do not need the array.
struct PolicyLossArgs {
  PolicyLossOptions options;
  const float* log_probs = nullptr;  // all [rows]
  const float* entropies = nullptr;
  const float* old_log_probs = nullptr;  // null: log_probs, without gradient
  const float* ref_log_probs = nullptr;
  const float* rollout_log_probs = nullptr;
  const float* advantages = nullptr;
  const float* mask = nullptr;
  const float* weights = nullptr;
  const int32_t* cu_rows = nullptr;  // [sequences + 1], if takes_sequence_means()
  int64_t rows = 0, sequences = 0;
  float* dlog_probs = nullptr;
  float* dentropies = nullptr;  // null: not computed
  double* metrics = nullptr;    // [kNumLossMetrics], added to (kLogProbMaxDiff by maximum)
};

// A KL estimate and its derivative with respect to log p.
struct KlValue {
  float value, derivative;
};

}  // namespace slimexx::kernels
