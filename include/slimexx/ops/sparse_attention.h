// The choice of keys for sparse attention (DeepSeek's lightning indexer): a light score of every
// key, and each query's best. attention_forward and _backward then walk the chosen alone
// (AttentionLayout::selected). No gradient flows through the choice.
//
// A layout without `selected` says where queries and index keys stand, as for attention. Both ops
// take a run of R of its queries, from row `first_row` on, so that scores need not exist for a
// whole batch at once; the cut changes no bit.
//
// On CUDA lengths are read from the device, as in attention: rows behind the last sequence, which
// pad a decode's graph, have no scores and select nothing (-1). It serves up to kMostIndexHeads
// heads of up to kMostIndexHeadDim elements, a multiple of 8 (device_limits.h), and pages of a
// power of two >= 16 tokens; any k and any number of keys below 2^30.
//
// Legend: n index heads, D elements of each, k keys of a query.
#pragma once
#include <cstdint>

#include "slimexx/ops/attention.h"

namespace slimexx::ops {

// How many keys the longest sequence of a layout may have, by shapes alone: of packed ones the
// number of tokens, of gathered ones that of all keys.
int64_t max_sequence_keys(const AttentionLayout& layout, int64_t num_tokens);

// scores[R, >= keys of any sequence] f32, a column for each position of the query's own sequence:
//   scores[t,j] = sum over heads h, ascending, of weights[t,h] * max(0, scale * q[t,h] . k[j])
// for j up to the query's own position; later columns are left as they are, and so may be all of a
// query that has no more than top_k keys, since it gets every one. q[R,n,D] (free token stride),
// weights[R,n] f32; k as in attention_forward, with one head: packed or gathered
// [T or num_keys,1,D], or pages.
void index_scores(const Context& ctx, Tensor scores, Tensor q, Tensor weights, Tensor k,
                  const AttentionLayout& layout, int64_t first_row, int64_t top_k, float scale);

// selected[R,k] i32: positions of the k keys with the largest scores, ascending. Of equal scores
// the lower position is taken; NaN counts as -inf. A query with no more than k keys gets all of
// them, whatever their scores, and -1 behind them.
void select_keys(const Context& ctx, Tensor selected, Tensor scores, const AttentionLayout& layout,
                 int64_t first_row);

}  // namespace slimexx::ops
