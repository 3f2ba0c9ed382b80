// Sampling of tokens from logits.
#pragma once
#include <cstdint>

#include "slimexx/kernels/sampling_parameters.h"
#include "slimexx/ops/context.h"

namespace slimexx::ops {

// Sampling parameters of one row: a record of 48 bytes in a table that the engine stages.
using SamplingRow = kernels::SamplingParameters;

// (scratch) Samples one token per row of raw logits[R,V] f32, which may be overwritten. A row is
// normalised as by normalize_logits with its own temperature. tokens[R] i32 and log_probs[R] =
// logits[r,token] - lse, before any truncation (N9). Truncation order: top_k; top_p over the
// renormalised rest (the smallest set whose mass reaches top_p, ties to the lower id); min_p (p >=
// min_p * max p). The uniform number selects among the kept tokens by cumulative weight in id
// order. `rows` [R, 48] U8 holds SamplingRows. Ids at or above `allowed_tokens` are never sampled
// (0: the whole row). A row with NaN, +inf or only -inf gives the token -1 (see throw_bad_logits).
// With `leaves` > 1 log-probs are those of rows normalised in that many equal leaves (merge_lse).
void sample_tokens(const Context& ctx, Tensor tokens, Tensor log_probs, Tensor logits, Tensor rows,
                   int64_t allowed_tokens, int64_t leaves = 1);
// In place over tokens[T] i32: an id below 0 stands for sampled[~id], the token that the previous
// step sampled in row ~id (sampled[R] i32). If that token is -1, the id becomes 0.
void fill_sampled_tokens(const Context& ctx, Tensor tokens, Tensor sampled);
// Copies tokens[R] i32 and log_probs[R] to the host, in stream order. On CUDA the host memory must
// belong to a StagingBuffer and a kernel writes it: a copy between recorded steps takes many times
// as long.
void copy_samples_to_host(const Context& ctx, int32_t* host_tokens, float* host_log_probs,
                          Tensor tokens, Tensor log_probs);
// Inputs of one draft pass, one row per sequence: [R] i32 each, except parameters [R,48] U8.
struct DraftPass {
  Tensor tokens, positions, parameters;
  Tensor slots, context_lens;
};
// A batch that verified drafts, one token per row: its tokens and the tokens sampled from its rows,
// [T] i32, and for each sequence the first row and the number of its drafts, [R] i32. The
// sequences' own rows are the first R of the batch.
struct CheckedDrafts {
  Tensor tokens, sampled, first_drafts, num_drafts;
};
// Pages of each sequence: table [R,P] i32, and held_tokens [R] i32, at least 1: the number of
// positions that the sequence has pages for.
struct DraftPages {
  Tensor table, held_tokens;
  int64_t page_tokens = 0;
};
// Writes `next`, the inputs of the pass after `last`, whose draft tokens are guessed[R] i32, and
// from_rows[R] i32, the row of `last` that each row continues. tokens, slots and context_lens of
// `last` are not read. If `last` is a batch, `checked` describes it, and each sequence continues
// its last accepted row; otherwise `checked` is null, and `next` may have the memory of `last`. A
// row without a page gets slot -1.
void advance_drafts(const Context& ctx, const DraftPass& next, Tensor from_rows,
                    const DraftPass& last, Tensor guessed, const CheckedDrafts* checked,
                    const DraftPages& pages);
// The error to throw when the caller finds a token of -1.
[[noreturn]] void throw_bad_logits(int64_t row);

}  // namespace slimexx::ops
