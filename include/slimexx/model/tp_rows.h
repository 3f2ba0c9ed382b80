// Splits a batch over tensor-parallel ranks: rows of the residual stream, tokens of the vocabulary
// shard, and rows that predict. All tp ranks call with the same rows. With one tp rank results are
// empty or undefined, as Batch and HeadRows expect. A planning context uses the maximum over tp
// ranks, so that all of them plan the same. Tensors are from the context's arena.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "slimexx/model/batch.h"
#include "slimexx/ops/context.h"

namespace slimexx::model {

// Batch::tp_rows for a batch of `num_rows` rows.
std::vector<dist::Range> split_over_tp(const ops::Context& ctx, int64_t num_rows);
// Batch::tp_rows if every tp rank has all `num_rows` rows.
std::vector<dist::Range> repeat_over_tp(const ops::Context& ctx, int64_t num_rows);
bool has_all_rows(const Batch& batch);  // with several tp ranks: each has all rows

// [T,W]: all-gather of the tp ranks' rows `own` [t,W] of the residual stream.
Tensor gather_tp_rows(const ops::Context& ctx, const Batch& batch, Tensor own);

// This rank's shard of the vocabulary.
dist::Range own_vocabulary(const ops::Context& ctx, int64_t vocab_size);

// Batch::own_vocabulary for these tokens.
VocabularyTokens select_own_tokens(const ops::Context& ctx, int64_t vocab_size,
                                   std::span<const int32_t> tokens);

// By tp rank: the range of `rows` (ascending rows of the batch) that the rank holds.
std::vector<dist::Range> split_selected_rows(const ops::Context& ctx,
                                             std::span<const dist::Range> tp_rows,
                                             std::span<const int32_t> rows);
// This rank's part of `rows`, [r] i32, as row indices into its residual stream.
Tensor select_own_rows(const ops::Context& ctx, std::span<const dist::Range> tp_rows,
                       std::span<const dist::Range> tp_ranges, std::span<const int32_t> rows);

}  // namespace slimexx::model
