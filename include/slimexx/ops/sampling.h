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
// The error that a token of -1 calls for, once the caller has seen it.
[[noreturn]] void throw_bad_logits(int64_t row);

}  // namespace slimexx::ops
