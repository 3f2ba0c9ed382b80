// What one forward runs over.
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

// Where a layer's keys and values live in generation; undefined: packed.
struct LayerPages {
  Tensor k, v;          // [num_pages, page_tokens, Hkv, D]
  Tensor index_k = {};  // [num_pages, page_tokens, 1, D] of an indexer (blocks/sparse_index.h)
};

// Which keys the queries of a layer see.
struct KeyChoice {
  bool selects = false;  // by the layer's own select_keys
  bool shares = false;   // as the last layer before it that selects
  int64_t top_k = 0;     // of one query; 0: all
};

// Tokens in this rank's shard of the vocabulary, [n] i32 each: rows of the batch, and the rows of
// the shard that they are.
struct VocabularyTokens {
  Tensor rows, ids;
};

// Packed (training): pages and slots are empty. Paged (generation): the batch's keys and values are
// written to `slots` first, then attention reads the page table.
//
// With tensor parallelism every tp rank has the same batch, and the residual stream is split by
// rows (sequence parallelism): tp_rows[r] are those of tp rank r. A block gathers the rows that its
// own shard of the weights works on, and leaves sums over tp ranks with the owners of their rows.
// Or, of few rows, every tp rank has all (repeats_rows): each range is [0, T), nothing is gathered,
// and sums are made by all (repeat_over_tp).
//
// With context parallelism (packed only) the batch has the rows of this cp rank, and `context` says
// which of all they are. Each sequence is two in the attention layout, which is of keys gathered
// over the cp ranks: the rank's chunks of it. On CUDA these keys lie in pages
// (gather_context_pages), and backward is of `sequences`, whole ones, for this rank's queries.
struct Batch {
  Tensor tokens;     // [T] i32
  Tensor positions;  // [T] i32
  // Ascending, cover [0, T); or all the same; empty: one tp rank.
  std::span<const dist::Range> tp_rows = {};
  // Ranges do not tell: where one row is split, a planning context has every rank plan for it.
  bool repeats_rows = false;
  // For backward of the embedding; undefined: one tp rank, or none.
  VocabularyTokens own_vocabulary = {};
  ops::AttentionLayout attention;
  ContextRows context = {};
  ops::AttentionLayout sequences = {};  // packed, of all cp ranks; CUDA only
  // Training: this rank's rows of the residual stream by sequence.
  ops::PackedSequences own_sequences = {};
  Tensor slots;                       // [T] i32
  std::span<const LayerPages> pages;  // by layer of the stage
};

// The rows of the residual stream on this rank.
dist::Range own_rows(const Batch& batch, const dist::Groups& groups);

// Sizes of a tape: the rows of the residual stream on this rank, and all rows of the batch, which
// the shards of attention and MLP work on.
struct RowCounts {
  int64_t own = 0, all = 0;
  RowCounts(int64_t num_rows) : own(num_rows), all(num_rows) {}  // of one tp rank
  RowCounts(int64_t own_rows, int64_t all_rows) : own(own_rows), all(all_rows) {}
};

}  // namespace slimexx::model
