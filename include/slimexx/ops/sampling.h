// Sampling of tokens from logits.
#pragma once
#include <cstdint>

#include "slimexx/kernels/sampling_parameters.h"
#include "slimexx/ops/context.h"

namespace slimexx::ops {

// How one row is sampled: one record of 48 bytes in a table that the engine stages.
using SamplingRow = kernels::SamplingParameters;

// (scratch) One token per row of raw logits[R,V] f32, which may be overwritten. A row is normalised
// as by normalize_logits with its own temperature; tokens[R] i32 and log_probs[R] = logits[r,token]
// - lse, before any truncation (N9). Truncation order: top_k, then top_p over
// the renormalised rest (smallest set whose mass reaches top_p, ties to the lower id), then min_p
// (p >= min_p * max p). The uniform number walks the kept tokens in id order. `rows` [R, 48] U8
// holds SamplingRows. `allowed_tokens`: ids at or above it are never sampled (0: the whole row). A
// row of NaN, +inf or nothing but -inf gives the token -1 (see throw_bad_logits). With `leaves` > 1
// log-probs are of rows that are normalised in so many equal leaves (merge_lse).
void sample_tokens(const Context& ctx, Tensor tokens, Tensor log_probs, Tensor logits, Tensor rows,
                   int64_t allowed_tokens, int64_t leaves = 1);
// In place over tokens[T] i32: an id below 0 stands for sampled[~id], what the step before sampled
// in that row (sampled[R] i32); where that is -1 it becomes 0.
void resolve_tokens(const Context& ctx, Tensor tokens, Tensor sampled);
// tokens[R] i32 and log_probs[R] to the host, in stream order. On CUDA the host's memory must be a
// StagingBuffer's and a kernel writes it: between recorded steps a copy takes many times as long.
void hand_out_samples(const Context& ctx, int32_t* host_tokens, float* host_log_probs,
                      Tensor tokens, Tensor log_probs);
// One pass of drafts, a row a sequence: [R] i32 each, but parameters [R,48] U8.
struct DraftPass {
  Tensor tokens, positions, parameters;
  Tensor slots, context_lens;
};
// A batch of one token a row that checked drafts: its tokens, what its rows sampled, and for each
// sequence, whose own rows are the first, the first row of its drafts and their number; [T] or [R]
// i32 each.
struct CheckedDrafts {
  Tensor tokens, sampled, first_drafts, num_drafts;
};
// Where a sequence's keys lie: table [R,P] i32, and for how many positions it has pages, [R] i32,
// at least 1.
struct DraftPages {
  Tensor table, held_tokens;
  int64_t page_tokens = 0;
};
// Writes `next`, the tokens behind those that a pass guessed (guessed[R] i32): the rows follow
// `from_rows`[R] i32 of that pass. Of `last`, tokens, slots and context_lens are not read. Where
// the pass before is a batch, `checked` says which of its rows is a sequence's last that counts;
// else it is null and `next` may have the memory of `last`. A row without a page has slot -1.
void advance_drafts(const Context& ctx, const DraftPass& next, Tensor from_rows,
                    const DraftPass& last, Tensor guessed, const CheckedDrafts* checked,
                    const DraftPages& pages);
// The error that a token of -1 calls for, once the caller has seen it.
[[noreturn]] void throw_bad_logits(int64_t row);

}  // namespace slimexx::ops
