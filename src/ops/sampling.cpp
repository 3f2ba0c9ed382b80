#include "slimexx/ops/sampling.h"

#include <algorithm>

#include "ops/checks.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cuda/cuda_ops.h"
#include "slimexx/base/error.h"
#include "slimexx/kernels/draft_rows.h"
#include "slimexx/ops/log_prob.h"

namespace slimexx::ops {

namespace {

// Log-probs of the tokens that the device sampled, with each row normalised by leaves.
void read_leaf_log_probs(const Context& ctx, Tensor tokens, Tensor log_probs, Tensor logits,
                         [[maybe_unused]] Tensor rows, int64_t leaves) {
  const tensor::ArenaScope scope(ctx.arena);
  const int64_t num_rows = logits.dim(0), width = logits.dim(1) / leaves;
  const Tensor lse = ctx.arena.allocate(tensor::DType::kF32, {num_rows});
  const Tensor of_leaves = ctx.arena.allocate(tensor::DType::kF32, {leaves, num_rows});
  for (int64_t l = 0; l < leaves; ++l) {
    const Tensor leaf = logits.columns(l * width, (l + 1) * width);
    const Tensor own = of_leaves.rows(l, l + 1).reshaped({num_rows});
    check_f32("sample_tokens", "leaf", ctx, leaf, {own.dim(0), kAny}, Strides::kRows);
    SLX_LAUNCH_SCRATCH(normalize_sampled_logits(ctx, leaf, own, rows));
  }
  merge_lse(ctx, lse, of_leaves);
  gather_log_probs(ctx, log_probs, {}, logits, lse, tokens);
}

}  // namespace

void sample_tokens(const Context& ctx, Tensor tokens, Tensor log_probs, Tensor logits, Tensor rows,
                   int64_t allowed_tokens, int64_t leaves) {
  constexpr const char* kOp = "sample_tokens";
  check_f32(kOp, "logits", ctx, logits, {kAny, kAny}, Strides::kRows);
  check_i32(kOp, "tokens", ctx, tokens, {logits.dim(0)});
  check_f32(kOp, "log_probs", ctx, log_probs, {logits.dim(0)});
  check_operand(kOp, "rows", ctx, rows, tensor::DType::kU8,
                {logits.dim(0), static_cast<int64_t>(sizeof(SamplingRow))});
  SLX_CHECK(allowed_tokens >= 0 && allowed_tokens <= logits.dim(1),
            "{} allowed tokens are not in a vocabulary of {}", allowed_tokens, logits.dim(1));
  SLX_CHECK(leaves >= 1 && logits.dim(1) % leaves == 0,
            "{} leaves do not divide a vocabulary of {}", leaves, logits.dim(1));
  if (runs_on_cpu(ctx))
    return cpu::sample_tokens(tokens, log_probs, logits, rows, allowed_tokens, leaves);
  SLX_LAUNCH_SCRATCH(sample_tokens(ctx, tokens, log_probs, logits, rows, allowed_tokens));
  if (leaves > 1) read_leaf_log_probs(ctx, tokens, log_probs, logits, rows, leaves);
}

void fill_sampled_tokens(const Context& ctx, Tensor tokens, Tensor sampled) {
  check_i32("fill_sampled_tokens", "tokens", ctx, tokens, {kAny});
  check_i32("fill_sampled_tokens", "sampled", ctx, sampled, {kAny});
  if (runs_on_cpu(ctx)) return cpu::fill_sampled_tokens(tokens, sampled);
  SLX_LAUNCH(fill_sampled_tokens(ctx, tokens, sampled));
}

void copy_samples_to_host(const Context& ctx, int32_t* host_tokens, float* host_log_probs,
                          Tensor tokens, Tensor log_probs) {
  check_i32("copy_samples_to_host", "tokens", ctx, tokens, {kAny});
  check_f32("copy_samples_to_host", "log_probs", ctx, log_probs, {tokens.dim(0)});
  if (runs_on_cpu(ctx)) {
    std::copy_n(tokens.i32(), tokens.dim(0), host_tokens);
    std::copy_n(log_probs.f32(), tokens.dim(0), host_log_probs);
    return;
  }
  SLX_LAUNCH(copy_samples_to_host(ctx, host_tokens, host_log_probs, tokens, log_probs));
}

void advance_drafts(const Context& ctx, const DraftPass& next, Tensor from_rows,
                    const DraftPass& last, Tensor guessed, const CheckedDrafts* checked,
                    const DraftPages& pages) {
  constexpr const char* kOp = "advance_drafts";
  constexpr auto kRowBytes = static_cast<int64_t>(sizeof(SamplingRow));
  const int64_t count = next.tokens.dim(0);
  check_i32(kOp, "next.tokens", ctx, next.tokens, {count});
  check_i32(kOp, "next.positions", ctx, next.positions, {count});
  check_i32(kOp, "next.slots", ctx, next.slots, {count});
  check_i32(kOp, "next.context_lens", ctx, next.context_lens, {count});
  check_i32(kOp, "from_rows", ctx, from_rows, {count});
  check_i32(kOp, "last.positions", ctx, last.positions, {kAny});
  check_i32(kOp, "guessed", ctx, guessed, {kAny});
  check_operand(kOp, "next.parameters", ctx, next.parameters, tensor::DType::kU8,
                {count, kRowBytes});
  check_operand(kOp, "last.parameters", ctx, last.parameters, tensor::DType::kU8,
                {kAny, kRowBytes});
  check_i32(kOp, "pages.table", ctx, pages.table, {kAny, kAny});
  check_i32(kOp, "pages.held_tokens", ctx, pages.held_tokens, {count});
  SLX_CHECK(pages.table.dim(0) >= count && pages.page_tokens > 0,
            "a page table of {} rows with pages of {} tokens is too small", pages.table.dim(0),
            pages.page_tokens);
  kernels::DraftRows rows{.positions = last.positions.i32(),
                          .guessed = guessed.i32(),
                          .parameters = last.parameters.data<SamplingRow>(),
                          .page_table = pages.table.i32(),
                          .page_table_stride = pages.table.stride(0),
                          .page_tokens = pages.page_tokens,
                          .held_tokens = pages.held_tokens.i32(),
                          .next_tokens = next.tokens.i32(),
                          .next_positions = next.positions.i32(),
                          .next_slots = next.slots.i32(),
                          .next_context_lens = next.context_lens.i32(),
                          .from_rows = from_rows.i32(),
                          .next_parameters = next.parameters.data<SamplingRow>(),
                          .count = count};
  if (checked != nullptr) {
    check_i32(kOp, "checked.tokens", ctx, checked->tokens, {kAny});
    check_i32(kOp, "checked.sampled", ctx, checked->sampled, {kAny});
    check_i32(kOp, "checked.first_drafts", ctx, checked->first_drafts, {count});
    check_i32(kOp, "checked.num_drafts", ctx, checked->num_drafts, {count});
    rows.tokens = checked->tokens.i32();
    rows.sampled = checked->sampled.i32();
    rows.first_drafts = checked->first_drafts.i32();
    rows.num_drafts = checked->num_drafts.i32();
  }
  if (runs_on_cpu(ctx)) {
    for (int32_t row = 0; row < count; ++row) kernels::advance_draft_row(rows, row);
    return;
  }
  SLX_LAUNCH(advance_drafts(ctx, rows));
}

void throw_bad_logits(int64_t row) {
  throw Error(ErrorCode::kRun,
              "the logits of row " + std::to_string(row) + " hold NaN, +inf, or nothing but -inf",
              "the weights are damaged or overflow; in training, check the gradient norm and the "
              "learning rate");
}

}  // namespace slimexx::ops
