// Shared by the forward and the backward pass of attention: where the rows of a sequence lie, which
// keys a tile walks, and the sizes of one tile. A tile is a run of tokens of one sequence for one
// key head; its rows are (token, query head of the group), heads fastest. With selected keys a tile
// is one token, since every token has its own keys.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "ops/cpu/float8_values.h"
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
  // `width` elements of a row are read. `latent`: the form of FP8 rows of latent attention.
  KeyRows(const CacheRows& x, const AttentionLayout& layout, int64_t sequence, int64_t head,
          int64_t width, const tensor::F8LatentRow& latent = {})
      : x_(x), latent_(latent), head_(head), width_(width) {
    if (layout.page_table.defined()) {
      pages_ = layout.page_table.i32() + sequence * layout.page_table.dim(1);
      page_tokens_ = layout.page_tokens;
    } else {
      first_row_ = first_key_row(layout, sequence);
    }
  }
  // The elements of a row. FP8 rows are converted into `converted` [width].
  const float* load(int64_t position, float* converted) const {
    const Tensor& rows = x_.rows;
    if (pages_ == nullptr)
      return rows.f32() + (first_row_ + position) * rows.stride(0) + head_ * rows.dim(-1);
    const int64_t page = pages_[position / page_tokens_], offset = position % page_tokens_;
    SLX_CHECK(page >= 0 && page < rows.dim(0), "page {} of position {} is not one of the {} pages",
              page, position, rows.dim(0));
    const int64_t heads = rows.dim(2), dim = rows.dim(3);
    const int64_t element = (offset * heads + head_) * dim;
    if (!x_.is_fp8()) return rows.f32() + page * rows.stride(0) + element;
    const uint8_t* bytes = rows.data<uint8_t>() + page * rows.stride(0) + element;
    if (x_.is_latent_fp8()) {
      convert_latent(bytes, converted);
    } else {
      const uint16_t* scales = x_.scales.data<uint16_t>();
      convert(bytes, width_,
              tensor::bf16_to_f32(scales[(page * heads + head_) * page_tokens_ + offset]),
              converted);
    }
    return converted;
  }

 private:
  static void convert(const uint8_t* bytes, int64_t n, float scale, float* to) {
    const std::array<float, 256>& value_of = f8_values();
    for (int64_t i = 0; i < n; ++i) to[i] = value_of[bytes[i]] * scale;
  }
  void convert_latent(const uint8_t* bytes, float* to) const {
    for (int64_t g = 0; g < latent_.groups; ++g) {
      float scale = 0;
      std::memcpy(&scale, bytes + latent_.scales_at + 4 * g, sizeof(scale));
      const int64_t first = g * tensor::kF8LatentGroup;
      convert(bytes + first, std::min(tensor::kF8LatentGroup, latent_.rank - first), scale,
              to + first);
    }
    if (width_ > latent_.rank)
      std::memcpy(to + latent_.rank, bytes + latent_.rotary_at,
                  static_cast<size_t>(width_ - latent_.rank) * sizeof(float));
  }

  const CacheRows& x_;
  tensor::F8LatentRow latent_;
  int64_t head_, width_, first_row_ = 0, page_tokens_ = 1;
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

// Copies a row of `dim` floats, unless it is in place, and pads it with zeros to `padded`.
inline void copy_row(float* to, const float* from, int64_t dim, int64_t padded) {
  if (to != from) std::memcpy(to, from, static_cast<size_t>(dim) * sizeof(float));
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
