#include "ops/cpu/attention.h"

#include <cmath>
#include <limits>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/isa/isa.h"
#include "ops/cpu/scratch.h"
#include "slimexx/base/check.h"
#include "slimexx/base/thread_pool.h"

namespace slimexx::ops::cpu {
namespace {

struct ForwardArguments {
  Tensor out, lse, q;
  const CacheRows &k, &v;
  const AttentionLayout& layout;
  float scale;
};

struct Tile {
  int64_t sequence, first_token, num_tokens;  // first_token counts from the sequence's first query
};

// Online softmax over one tile (N3). The arithmetic of a query is independent of other queries:
// each score is one chain over the head dimension; the accumulator is rescaled once per block and
// then adds the visible keys of the block in one chain.
class ForwardTile {
 public:
  ForwardTile(const KernelTable& isa, const ForwardArguments& args, const AttentionShape& shape,
              const Tile& tile, int64_t kv_head)
      : isa_(isa),
        args_(args),
        shape_(shape),
        tile_(tile),
        kv_head_(kv_head),
        rows_(tile.num_tokens * shape.group),
        walk_(
            walk_keys(args.layout, batch_row(tile.num_tokens - 1), position(tile.num_tokens - 1))) {
    const int64_t max_rows = shape.max_rows(), dim = shape.dim, padded = shape.padded_value_dim;
    ScratchCarver carver(thread_scratch(
        Scratch::kAttention, max_rows * (2 * dim + padded + kScoreColumns + 2) +
                                 (dim + padded + converted_dim()) * kScoreColumns + 512));
    queries_ = carver.take(max_rows * dim);
    packed_queries_ = carver.take(max_rows * dim + 16);
    accumulator_ = carver.take(max_rows * padded);
    scores_ = carver.take(max_rows * kScoreColumns);
    keys_ = carver.take(dim * kScoreColumns + 16);
    values_ = carver.take(kScoreColumns * padded);
    converted_ = carver.take(kScoreColumns * converted_dim());
    maximum_ = carver.take(max_rows);
    sum_ = carver.take(max_rows);
  }

  void run() {
    load_queries();
    const tensor::F8LatentRow latent =
        tensor::latent_f8_row(shape_.value_dim, shape_.dim - shape_.value_dim, sizeof(float));
    const KeyRows k(args_.k, args_.layout, tile_.sequence, kv_head_, shape_.dim, latent);
    const KeyRows v(args_.v, args_.layout, tile_.sequence, kv_head_, shape_.value_dim, latent);
    for (int64_t start = 0; start < walk_.count; start += kAttentionBlock)
      visit_block(k, v, start, std::min(kAttentionBlock, walk_.count - start));
    write_output();
  }

 private:
  // Floats per key for the conversion of an FP8 row.
  int64_t converted_dim() const { return args_.k.is_fp8() ? shape_.dim : 0; }
  int64_t position(int64_t token) const {
    const auto b = static_cast<size_t>(tile_.sequence);
    return args_.layout.context_len(b) + tile_.first_token + token;
  }
  // Number of keys that a token sees in the block that begins at key `start` of the walk.
  int64_t visible(int64_t token, int64_t start) const {
    const int64_t seen = walk_.ids == nullptr ? position(token) + 1 : walk_.count;
    return std::clamp<int64_t>(seen - start, 0, kAttentionBlock);
  }
  int64_t batch_row(int64_t token) const {
    return args_.layout.cu_seqlens[static_cast<size_t>(tile_.sequence)] + tile_.first_token + token;
  }

  void load_queries() {
    for (int64_t i = 0; i < rows_; ++i) {
      const HeadRows head(args_.q, kv_head_ * shape_.group + i % shape_.group);
      std::memcpy(queries_ + i * shape_.dim, head[batch_row(i / shape_.group)],
                  static_cast<size_t>(shape_.dim) * sizeof(float));
    }
    isa_.pack_a(queries_, shape_.dim, 1, rows_, shape_.dim, packed_queries_);
    std::fill_n(accumulator_, rows_ * shape_.padded_value_dim, 0.0f);
    std::fill_n(maximum_, rows_, -std::numeric_limits<float>::infinity());
    std::fill_n(sum_, rows_, 0.0f);
  }

  void visit_block(const KeyRows& k, const KeyRows& v, int64_t start, int64_t width) {
    const float* rows[kAttentionBlock];
    for (int64_t j = 0; j < width; ++j) {
      const int64_t key = walk_[start + j];
      rows[j] = k.load(key, converted_ + j * converted_dim());
      float* value = values_ + j * shape_.padded_value_dim;
      copy_row(value, v.load(key, value), shape_.value_dim, shape_.padded_value_dim);
    }
    isa_.transpose_rows(rows, width, shape_.dim, keys_);
    multiply_scores(isa_, rows_, shape_.dim, packed_queries_, keys_, scores_);
    for (int64_t i = 0; i < rows_; ++i) {
      const int64_t seen = visible(i / shape_.group, start);
      if (seen == 0) continue;
      const float correction = isa_.softmax_block(scores_ + i * kScoreColumns, seen, args_.scale,
                                                  maximum_ + i, sum_ + i);
      if (correction != 1.0f)
        isa_.scale_row(accumulator_ + i * shape_.padded_value_dim, shape_.padded_value_dim,
                       correction);
    }
    if (visible(0, start) == visible(tile_.num_tokens - 1, start)) {
      add_values(0, rows_, visible(0, start));
    } else {
      for (int64_t t = 0; t < tile_.num_tokens; ++t)
        add_values(t * shape_.group, shape_.group, visible(t, start));
    }
  }

  // Adds visible keys only, so that no later key can influence a query, not even a NaN.
  void add_values(int64_t first_row, int64_t num_rows, int64_t num_keys) {
    if (num_keys == 0) return;
    isa_.multiply_block({.m = num_rows,
                         .n = shape_.padded_value_dim,
                         .k = num_keys,
                         .a = scores_ + first_row * kScoreColumns,
                         .a_row_stride = kScoreColumns,
                         .a_column_stride = 1,
                         .b = values_,
                         .ldb = shape_.padded_value_dim,
                         .c = accumulator_ + first_row * shape_.padded_value_dim,
                         .ldc = shape_.padded_value_dim,
                         .accumulate = true});
  }

  void write_output() {
    for (int64_t i = 0; i < rows_; ++i) {
      const int64_t head = kv_head_ * shape_.group + i % shape_.group,
                    row = batch_row(i / shape_.group);
      isa_.scale_row_into(HeadRows(args_.out, head)[row],
                          accumulator_ + i * shape_.padded_value_dim, shape_.value_dim,
                          1.0f / sum_[i]);
      if (args_.lse.defined())
        args_.lse.f32()[row * args_.q.dim(1) + head] = maximum_[i] + std::log(sum_[i]);
    }
  }

  const KernelTable& isa_;
  const ForwardArguments& args_;
  const AttentionShape& shape_;
  const Tile tile_;
  const int64_t kv_head_, rows_;
  const KeyWalk walk_;
  float *queries_, *packed_queries_, *accumulator_, *scores_, *keys_, *values_, *converted_,
      *maximum_, *sum_;
};

int64_t num_tiles(std::span<const int32_t> cu, size_t b, int64_t tile_tokens) {
  return (cu[b + 1] - cu[b] + tile_tokens - 1) / tile_tokens;
}

Tile find_tile(std::span<const int32_t> cu, int64_t tile_tokens, int64_t index) {
  size_t b = 0;
  while (index >= num_tiles(cu, b, tile_tokens)) index -= num_tiles(cu, b++, tile_tokens);
  const int64_t first = index * tile_tokens;
  return {static_cast<int64_t>(b), first,
          std::min<int64_t>(tile_tokens, cu[b + 1] - cu[b] - first)};
}

}  // namespace

void attention_forward(Tensor out, Tensor lse, Tensor q, const CacheRows& k, const CacheRows& v,
                       const AttentionLayout& layout, float scale) {
  const KernelTable& isa = kernels();
  const AttentionShape shape(q, k.rows, out, layout, isa);
  const ForwardArguments args{out, lse, q, k, v, layout, scale};
  int64_t total = 0;
  for (size_t b = 0; b + 1 < layout.cu_seqlens.size(); ++b)
    total += num_tiles(layout.cu_seqlens, b, shape.tile_tokens);
  // Last tiles first: they see the most keys, and so the threads finish at about the same time.
  parallel_for(total * shape.kv_heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Tile tile =
          find_tile(layout.cu_seqlens, shape.tile_tokens, total - 1 - i / shape.kv_heads);
      ForwardTile(isa, args, shape, tile, i % shape.kv_heads).run();
    }
  });
}

void write_kv_pages(Tensor k_pages, Tensor v_pages, Tensor k, Tensor v, Tensor slots) {
  const int64_t page_tokens = k_pages.dim(1), row = k.dim(1) * k.dim(2);
  const bool has_values = v_pages.defined();
  for (int64_t t = 0; t < k.dim(0); ++t) {
    const int64_t slot = slots.i32()[t];
    if (slot < 0) continue;
    SLX_CHECK(slot < k_pages.dim(0) * page_tokens, "slot {} of token {} is outside the pages", slot,
              t);
    const int64_t page = slot / page_tokens, offset = slot % page_tokens * row;
    const auto bytes = static_cast<size_t>(row) * sizeof(float);
    std::memcpy(k_pages.f32() + page * k_pages.stride(0) + offset, k.f32() + t * k.stride(0),
                bytes);
    if (!has_values) continue;
    std::memcpy(v_pages.f32() + page * v_pages.stride(0) + offset, v.f32() + t * v.stride(0),
                bytes);
  }
}

}  // namespace slimexx::ops::cpu
