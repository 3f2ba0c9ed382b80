#include "ops/checks.h"
#include "ops/cpu/cpu_ops.h"

namespace slimexx::ops {

void sample_tokens(Stream stream, Tensor tokens, Tensor log_probs, Tensor logits, Tensor lse,
                   std::span<const SamplingRow> rows, int64_t allowed_tokens) {
  constexpr const char* kOp = "sample_tokens";
  check_f32(kOp, "logits", stream, logits, {kAny, kAny}, Strides::kRows);
  check_f32(kOp, "lse", stream, lse, {logits.dim(0)});
  check_i32(kOp, "tokens", stream, tokens, {logits.dim(0)});
  check_f32(kOp, "log_probs", stream, log_probs, {logits.dim(0)});
  SLX_CHECK_EQ(static_cast<int64_t>(rows.size()), logits.dim(0));
  SLX_CHECK(allowed_tokens >= 0 && allowed_tokens <= logits.dim(1), "{} allowed of {}",
            allowed_tokens, logits.dim(1));
  if (runs_on_cpu(stream))
    return cpu::sample_tokens(tokens, log_probs, logits, lse, rows, allowed_tokens);
}

}  // namespace slimexx::ops
