// Shared by the forward and the backward pass of attention: where the rows of a sequence lie, which
// keys a tile walks, and the sizes of one tile. A tile is a run of tokens of one sequence for one
// key head; its rows are (token, query head of the group), heads fastest. With selected keys a tile
// is one token, since every token has its own keys.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "ops/cpu/isa/kernel_table.h"
#include "slimexx/base/check.h"
#include "slimexx/ops/attention.h"

namespace slimexx::ops::cpu {

static_assert(kAttentionBlock == kScoreColumns);

inline constexpr int64_t kAttentionTileRows = 96;

struct AttentionShape {
  int64_t dim, padded_dim;              // for queries and keys; padded to whole register tiles
  int64_t value_dim, padded_value_dim;  // for values
  int64_t kv_heads, group;              // query heads per key head
  int64_t tile_tokens;

  AttentionShape(const Tensor& q, const Tensor& k, const Tensor& out, const AttentionLayout& layout,
                 const KernelTable& isa)
      : dim(q.dim(2)),
        padded_dim((q.dim(2) + isa.columns - 1) / isa.columns * isa.columns),
        value_dim(out.dim(2)),
        padded_value_dim((out.dim(2) + isa.columns - 1) / isa.columns * isa.columns),
        kv_heads(k.dim(-2)),
        group(q.dim(1) / k.dim(-2)),
        tile_tokens(layout.selected.defined() ? 1
                                              : std::max<int64_t>(1, kAttentionTileRows / group)) {}
  int64_t max_rows() const { return tile_tokens * group; }
};

// Row pointers of one head: [T, heads, dim] with a free token stride.
class HeadRows {
 public:
  HeadRows(const Tensor& x, int64_t head)
      : base_(x.f32() + head * x.dim(2)), stride_(x.stride(0)) {}
  float* operator[](int64_t token) const { return base_ + token * stride_; }

 private:
  float* base_;
  int64_t stride_;
};

// First key row of a sequence whose keys are packed or gathered.
inline int64_t first_key_row(const AttentionLayout& layout, int64_t sequence) {
  const auto b = static_cast<size_t>(sequence);
  return layout.key_starts.empty() ? layout.cu_seqlens[b] : layout.key_starts[b];
}

// Rows of the keys (or values) of a sequence by position.
class KeyRows {
 public:
  KeyRows(const Tensor& x, const AttentionLayout& layout, int64_t sequence, int64_t head)
      : base_(x.f32() + head * x.dim(-1)), page_stride_(x.stride(0)) {
    if (layout.page_table.defined()) {
      pages_ = layout.page_table.i32() + sequence * layout.page_table.dim(1);
      page_tokens_ = layout.page_tokens;
      slot_stride_ = x.dim(2) * x.dim(3);
      num_pages_ = x.dim(0);
    } else {
      base_ += first_key_row(layout, sequence) * page_stride_;
    }
  }
  const float* operator[](int64_t position) const {
    if (pages_ == nullptr) return base_ + position * page_stride_;
    const int64_t page = pages_[position / page_tokens_];
    SLX_CHECK(page >= 0 && page < num_pages_, "page {} of position {} is not one of the {} pages",
              page, position, num_pages_);
    return base_ + page * page_stride_ + position % page_tokens_ * slot_stride_;
  }

 private:
  const float* base_;
  int64_t page_stride_, slot_stride_ = 0, page_tokens_ = 1, num_pages_ = 0;
  const int32_t* pages_ = nullptr;
};

// The keys of a tile, by ascending position: the first `count`, or the keys selected for the tile's
// only query.
struct KeyWalk {
  int64_t count = 0;
  const int32_t* ids = nullptr;
  int64_t operator[](int64_t i) const { return ids == nullptr ? i : ids[i]; }
};

// The keys of the tile whose last query is row `row` of the batch, at `position`.
inline KeyWalk walk_keys(const AttentionLayout& layout, int64_t row, int64_t position) {
  if (!layout.selected.defined()) return {.count = position + 1};
  const int64_t width = layout.selected.dim(1);
  const KeyWalk walk{.count = std::min(width, position + 1),
                     .ids = layout.selected.i32() + row * width};
  for (int64_t i = 0; i < walk.count; ++i)
    SLX_CHECK(walk.ids[i] <= position && walk.ids[i] > (i == 0 ? -1 : walk.ids[i - 1]),
              "key {} is selected after {} others, but is out of order or after the query at {}",
              walk.ids[i], i, position);
  return walk;
}

// Copies a row of `dim` floats and pads it with zeros to `padded`.
inline void copy_row(float* to, const float* from, int64_t dim, int64_t padded) {
  std::memcpy(to, from, static_cast<size_t>(dim) * sizeof(float));
  std::fill(to + dim, to + padded, 0.0f);
}

// scores[rows][64] = A keys; A is packed by KernelTable::pack_a, keys are transposed [dim][64].
inline void multiply_scores(const KernelTable& isa, int64_t rows, int64_t dim,
                            const float* packed_a, const float* keys, float* scores) {
  for (int64_t i = 0; i < rows; i += isa.rows) {
    const int64_t m = std::min(isa.rows, rows - i);
    isa.multiply_block({.m = m,
                        .n = kScoreColumns,
                        .k = dim,
                        .a = packed_a + i * dim,
                        .a_row_stride = 1,
                        .a_column_stride = m,
                        .b = keys,
                        .ldb = kScoreColumns,
                        .c = scores + i * kScoreColumns,
                        .ldc = kScoreColumns,
                        .accumulate = false});
  }
}

}  // namespace slimexx::ops::cpu
