#include "ops/cpu/policy_loss.h"

#include <algorithm>

#include "ops/policy_loss_args.h"
#include "slimexx/kernels/token_loss.h"

namespace slimexx::ops {
namespace {

using kernels::PolicyLossArgs;
using kernels::TokenPass;

float count_tokens(const PolicyLossArgs& args, int64_t begin, int64_t end) {
  float sum = 0;
  for (int64_t r = begin; r < end; ++r) sum += args.mask[r];
  return std::max(sum, 1.0f);
}

float mean_log_ratio(const PolicyLossArgs& args, const TokenPass& pass, int64_t begin,
                     int64_t end) {
  float sum = 0;
  for (int64_t r = begin; r < end; ++r) {
    if (args.mask[r] != 0) sum += pass.log_ratio(r);
  }
  return sum / count_tokens(args, begin, end);
}

void run_sample(const PolicyLossArgs& args, TokenPass& pass, int64_t begin, int64_t end) {
  const float sequence_log_ratio =
      kernels::takes_sequence_means(args.options) ? mean_log_ratio(args, pass, begin, end) : 0;
  float sequence_derivative = 0;
  for (int64_t r = begin; r < end; ++r) {
    if (args.mask[r] == 0) {
      pass.skip(r);
    } else {
      sequence_derivative += pass.run(r, sequence_log_ratio);
    }
  }
  if (args.options.kind != LossKind::kGspo) return;
  // The derivative of the sequence's mean log-ratio by the log-ratio of an unmasked token is 1 /
  // (number of unmasked tokens).
  const float share = sequence_derivative / count_tokens(args, begin, end);
  for (int64_t r = begin; r < end; ++r) {
    if (args.mask[r] != 0) args.dlog_probs[r] += share;
  }
}

}  // namespace

KlValue estimate_kl(KlKind kind, float d) { return kernels::estimate_kl(kind, d, false, 1); }

void cpu::policy_loss(Tensor dlog_probs, Tensor dentropies, Tensor metrics,
                      const PolicyLossRows& rows, const PolicyLossOptions& options) {
  const PolicyLossArgs args = describe_policy_loss(dlog_probs, dentropies, metrics, rows, options);
  TokenPass pass(args);
  std::copy_n(args.metrics, kNumLossMetrics, pass.sums);
  for (int64_t s = 0; s < args.sequences; ++s)
    run_sample(args, pass, args.cu_rows[s], args.cu_rows[s + 1]);
  std::copy_n(pass.sums, kNumLossMetrics, args.metrics);
}

}  // namespace slimexx::ops
