// What each tensor-parallel rank has of a batch: rows of the residual stream, tokens of its
// vocabulary, rows that predict. All tp ranks call with the same rows. With one tp rank results are
// empty or undefined, as Batch and HeadRows want them. A planning context counts the most that any
// tp rank may have, since those ranks plan alike. Tensors are from the context's arena.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "slimexx/model/batch.h"
#include "slimexx/ops/context.h"

namespace slimexx::model {

// Batch::tp_rows of a batch of `num_rows`.
std::vector<dist::Range> split_over_tp(const ops::Context& ctx, int64_t num_rows);
// The same where every tp rank has all rows.
std::vector<dist::Range> repeat_over_tp(const ops::Context& ctx, int64_t num_rows);
bool has_all_rows(const Batch& batch);  // on every one of several tp ranks

// [T,W] of all tp ranks' `own` [t,W]: rows of the residual stream.
Tensor gather_tp_rows(const ops::Context& ctx, const Batch& batch, Tensor own);

// This rank's shard of the vocabulary.
dist::Range own_vocabulary(const ops::Context& ctx, int64_t vocab_size);

// Batch::own_vocabulary of these tokens.
VocabularyTokens select_own_tokens(const ops::Context& ctx, int64_t vocab_size,
                                   std::span<const int32_t> tokens);

// Which of `rows` of the batch, ascending, each tp rank has.
std::vector<dist::Range> split_selected_rows(const ops::Context& ctx,
                                             std::span<const dist::Range> tp_rows,
                                             std::span<const int32_t> rows);
// Those of this rank, [r] i32, as rows of its residual stream.
Tensor select_own_rows(const ops::Context& ctx, std::span<const dist::Range> tp_rows,
                       std::span<const dist::Range> tp_ranges, std::span<const int32_t> rows);

}  // namespace slimexx::model
