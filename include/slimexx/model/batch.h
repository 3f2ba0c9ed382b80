// The input of one forward.
#pragma once
#include <cstdint>
#include <span>

#include "slimexx/dist/groups.h"
#include "slimexx/dist/ranges.h"
#include "slimexx/model/context_rows.h"
#include "slimexx/ops/attention.h"
#include "slimexx/ops/router_balance.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::model {

using tensor::Arena;
using tensor::DType;
using tensor::Tensor;

// KV-cache pages of one layer in generation, in the compute type or in FP8. Undefined tensors: the
// batch is packed.
struct LayerPages {
  ops::CacheRows k = {}, v = {};  // [num_pages, page_tokens, Hkv, D]
  ops::CacheRows index_k =
      {};  // [num_pages, page_tokens, 1, D] indexer keys (blocks/sparse_index.h)
};

// The keys that the queries of a layer see.
struct KeyChoice {
  bool selects = false;  // the layer runs its own select_keys
  bool shares = false;   // the layer reuses the selection of the last layer that selects
  int64_t top_k = 0;     // keys per query; 0: all
};

// The tokens that lie in this rank's shard of the vocabulary, [n] i32 each: `rows` are their rows
// in the batch, `ids` their rows in the shard.
struct VocabularyTokens {
  Tensor rows, ids;
};

// Packed (training): pages and slots are empty. Paged (generation): the batch's keys and values are
// written to `slots` first, then attention reads the page table.
//
// With tensor parallelism every tp rank has the same batch, and the residual stream is split by
// rows (sequence parallelism): tp rank r holds the rows tp_rows[r]. A block all-gathers the rows
// before its sharded products and reduce-scatters the results. If there are few rows, every tp rank
// holds all of them instead (repeats_rows, repeat_over_tp): each range is [0, T), nothing is
// gathered, and every rank computes the full sums.
//
// With context parallelism (packed only) the batch has the rows of this cp rank; `context` maps
// them to all rows. The attention layout has two entries per sequence, one for each chunk that this
// rank holds, and refers to keys gathered over the cp ranks. On CUDA forward reads these keys from
// pages (gather_context_pages); backward uses `sequences`, the whole sequences, for this rank's
// queries.
struct Batch {
  Tensor tokens;     // [T] i32
  Tensor positions;  // [T] i32
  // Ascending ranges that cover [0, T), or [0, T) for every rank. Empty: one tp rank.
  std::span<const dist::Range> tp_rows = {};
  // Not derived from the ranges: if a planning context splits one row, every rank plans as if it
  // held that row.
  bool repeats_rows = false;
  // For backward of the embedding. Undefined: one tp rank, or no backward of the embedding.
  VocabularyTokens own_vocabulary = {};
  ops::AttentionLayout attention;
  ContextRows context = {};
  ops::AttentionLayout sequences = {};  // whole packed sequences over all cp ranks; CUDA only
  // Training: this rank's rows of the residual stream, by sequence.
  ops::PackedSequences own_sequences = {};
  Tensor slots;                       // [T] i32
  std::span<const LayerPages> pages;  // by layer of the stage
};

// Router statistics that backward accumulates for a layer with experts, and the balancing losses
// whose gradients it adds. Backward does this, because it runs once per microbatch, while forward
// may run twice.
struct RouterBalance {
  Tensor sums = {};  // [2E+2] i64; undefined: no statistics and no losses
  ops::RouterBalanceRule rule = {};
  ops::PackedSequences sequences = {};
};

// The rows of the residual stream on this rank.
dist::Range own_rows(const Batch& batch, const dist::Groups& groups);

// Row counts that determine the size of a tape: `own` rows of the residual stream on this rank, and
// `all` rows of the batch, which sharded attention and MLP work on.
struct RowCounts {
  int64_t own = 0, all = 0;
  RowCounts(int64_t num_rows) : own(num_rows), all(num_rows) {}  // one tp rank
  RowCounts(int64_t own_rows, int64_t all_rows) : own(own_rows), all(all_rows) {}
};

}  // namespace slimexx::model
