// Selection of keys for sparse attention (DeepSeek's lightning indexer): a light score for every
// key, and the best keys of each query. attention_forward and _backward then use only the selected
// keys (AttentionLayout::selected). No gradient flows through the selection.
//
// A layout without `selected` gives the queries and index keys, as for attention. Both ops process
// R consecutive queries of the layout, from row `first_row` on, so that scores for a whole batch
// need not exist at once. The split does not change any bit.
//
// On CUDA lengths are read from the device, as in attention. Rows after the last sequence, the
// padding of a decode graph, get no scores and select nothing (-1). Limits: kMostIndexHeads heads
// of kMostIndexHeadDim elements, a multiple of 8 (device_limits.h); pages of a power of two >= 16
// tokens; any k; fewer than 2^30 keys.
//
// Legend: n index heads, D elements of each, k keys of a query.
#pragma once
#include <cstdint>

#include "slimexx/ops/attention.h"

namespace slimexx::ops {

// Upper bound on the keys of a sequence, from the shapes of a layout alone: packed, the number of
// tokens; gathered, the number of all keys; paged, the tokens of a row of the page table.
int64_t max_sequence_keys(const AttentionLayout& layout, int64_t num_tokens);

// scores[R, >= keys of any sequence] f32, one column per position of the query's own sequence:
//   scores[t,j] = sum over heads h, ascending, of weights[t,h] * max(0, scale * q[t,h] . k[j])
// for j up to the query's own position. Later columns are not written. Rows of queries with at most
// top_k keys may be left unwritten too, since those queries get every key. q[R,n,D] (free token
// stride), weights[R,n] f32; k as in attention_forward, with one head: packed or gathered [T or
// num_keys,1,D], or pages, in FP8 too.
void index_scores(const Context& ctx, Tensor scores, Tensor q, Tensor weights, const CacheRows& k,
                  const AttentionLayout& layout, int64_t first_row, int64_t top_k, float scale);

// selected[R,k] i32: positions of the k keys with the largest scores, ascending. Ties go to the
// lower position; NaN counts as -inf. A query with at most k keys gets all of them, whatever their
// scores, followed by -1.
void select_keys(const Context& ctx, Tensor selected, Tensor scores, const AttentionLayout& layout,
                 int64_t first_row);

}  // namespace slimexx::ops
