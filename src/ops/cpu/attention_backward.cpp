// Attention backward: recomputes p from lse, then
//   dv += p^T dout, dp = dout v^T, ds = p * (dp - delta) * scale, delta = sum(dout * out),
//   dq += ds k, dk += ds^T q.
// One thread owns one key head of a sequence, or of neighbouring sequences with the same keys. The
// outer loop ascends over tiles of queries, the inner loop over blocks of keys, so every sum has
// one order. A selection of all keys does not change that order.
#include <vector>

#include "ops/cpu/attention.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/isa/isa.h"
#include "ops/cpu/scratch.h"
#include "slimexx/base/thread_pool.h"

namespace slimexx::ops::cpu {
namespace {

struct BackwardArguments {
  Tensor dq, dk, dv, dout, q, k, v, out, lse;
  const AttentionLayout& layout;
  float scale;
};

// Sequences [begin, end) have the same keys: rows [first_key, first_key + num_keys).
struct KeyGroup {
  int64_t begin, end, first_key, num_keys;
};

std::vector<KeyGroup> list_key_groups(const AttentionLayout& layout) {
  std::vector<KeyGroup> groups;
  const bool gathered = !layout.key_starts.empty();
  const auto num_sequences = static_cast<int64_t>(layout.cu_seqlens.size()) - 1;
  for (int64_t b = 0; b < num_sequences; ++b) {
    const int64_t first = first_key_row(layout, b);
    if (gathered && b > 0 && groups.back().first_key == first) {
      groups.back().end = b + 1;
    } else {
      if (b > 0) groups.back().num_keys = first - groups.back().first_key;
      groups.push_back({b, b + 1, first, 0});
    }
  }
  if (!groups.empty())
    groups.back().num_keys =
        (gathered ? layout.num_keys : layout.cu_seqlens.back()) - groups.back().first_key;
  return groups;
}

class BackwardHead {
 public:
  BackwardHead(const KernelTable& isa, const BackwardArguments& args, const AttentionShape& shape,
               const KeyGroup& group, int64_t kv_head)
      : isa_(isa), args_(args), shape_(shape), group_(group), kv_head_(kv_head) {
    const int64_t rows = shape.max_rows(), dim = shape.dim, padded = shape.padded_dim;
    const int64_t value_dim = shape.value_dim, padded_value = shape.padded_value_dim;
    ScratchCarver carver(thread_scratch(
        Scratch::kAttention,
        rows * (2 * padded + padded_value + dim + value_dim + 2 * kScoreColumns + 2) +
            kScoreColumns * (dim + value_dim + padded) + 512));
    queries_ = carver.take(rows * padded);
    douts_ = carver.take(rows * padded_value);
    dqueries_ = carver.take(rows * padded);
    packed_queries_ = carver.take(rows * dim + 16);
    packed_douts_ = carver.take(rows * value_dim + 16);
    scores_ = carver.take(rows * kScoreColumns);
    dscores_ = carver.take(rows * kScoreColumns);
    keys_transposed_ = carver.take(dim * kScoreColumns + 16);
    values_transposed_ = carver.take(value_dim * kScoreColumns + 16);
    keys_ = carver.take(kScoreColumns * padded);
    lse_ = carver.take(rows);
    delta_ = carver.take(rows);
  }

  void run() {
    for (int64_t t = 0; t < group_.num_keys; ++t) {
      std::fill_n(HeadRows(args_.dk, kv_head_)[group_.first_key + t], shape_.dim, 0.0f);
      std::fill_n(HeadRows(args_.dv, kv_head_)[group_.first_key + t], shape_.value_dim, 0.0f);
    }
    for (int64_t sequence = group_.begin; sequence < group_.end; ++sequence) {
      const auto b = static_cast<size_t>(sequence);
      first_row_ = args_.layout.cu_seqlens[b];
      context_ = args_.layout.context_len(b);
      const int64_t num_tokens = args_.layout.cu_seqlens[b + 1] - first_row_;
      for (int64_t t = 0; t < num_tokens; t += shape_.tile_tokens)
        visit_tile(t, std::min(shape_.tile_tokens, num_tokens - t));
    }
  }

 private:
  void visit_tile(int64_t first_token, int64_t num_tokens) {
    first_token_ = first_token;
    rows_ = num_tokens * shape_.group;
    load_tile();
    const int64_t last = first_token + num_tokens - 1;
    walk_ = walk_keys(args_.layout, first_row_ + last, context_ + last);
    for (int64_t start = 0; start < walk_.count; start += kAttentionBlock)
      visit_block(start, std::min(kAttentionBlock, walk_.count - start));
    for (int64_t i = 0; i < rows_; ++i)
      std::memcpy(head_row(args_.dq, i), dqueries_ + i * shape_.padded_dim,
                  static_cast<size_t>(shape_.dim) * sizeof(float));
  }

  int64_t token_of(int64_t row) const { return first_token_ + row / shape_.group; }
  int64_t head_of(int64_t row) const { return kv_head_ * shape_.group + row % shape_.group; }
  float* head_row(const Tensor& x, int64_t row) const {
    return HeadRows(x, head_of(row))[first_row_ + token_of(row)];
  }

  void load_tile() {
    const int64_t dim = shape_.dim, padded = shape_.padded_dim;
    const int64_t value_dim = shape_.value_dim, padded_value = shape_.padded_value_dim;
    for (int64_t i = 0; i < rows_; ++i) {
      copy_row(queries_ + i * padded, head_row(args_.q, i), dim, padded);
      copy_row(douts_ + i * padded_value, head_row(args_.dout, i), value_dim, padded_value);
      delta_[i] = isa_.dot(head_row(args_.dout, i), head_row(args_.out, i), value_dim);
      lse_[i] = args_.lse.f32()[(first_row_ + token_of(i)) * args_.q.dim(1) + head_of(i)];
    }
    isa_.pack_a(queries_, padded, 1, rows_, dim, packed_queries_);
    isa_.pack_a(douts_, padded_value, 1, rows_, value_dim, packed_douts_);
    std::fill_n(dqueries_, rows_ * padded, 0.0f);
  }

  void load_block(int64_t start, int64_t width) {
    const HeadRows k(args_.k, kv_head_), v(args_.v, kv_head_);
    const float *k_rows[kAttentionBlock], *v_rows[kAttentionBlock];
    for (int64_t j = 0; j < width; ++j) {
      const int64_t row = group_.first_key + walk_[start + j];
      k_rows[j] = k[row];
      v_rows[j] = v[row];
      copy_row(keys_ + j * shape_.padded_dim, k_rows[j], shape_.dim, shape_.padded_dim);
    }
    isa_.transpose_rows(k_rows, width, shape_.dim, keys_transposed_);
    isa_.transpose_rows(v_rows, width, shape_.value_dim, values_transposed_);
  }

  void visit_block(int64_t start, int64_t width) {
    load_block(start, width);
    multiply_scores(isa_, rows_, shape_.dim, packed_queries_, keys_transposed_, scores_);
    multiply_scores(isa_, rows_, shape_.value_dim, packed_douts_, values_transposed_, dscores_);
    for (int64_t i = 0; i < rows_; ++i) {
      float* scores = scores_ + i * kScoreColumns;
      const int64_t position = context_ + token_of(i);
      const int64_t seen =
          walk_.ids != nullptr ? width : std::clamp<int64_t>(position + 1 - start, 0, width);
      isa_.softmax_from_lse(scores, seen, args_.scale, lse_[i]);
      isa_.softmax_backward(dscores_ + i * kScoreColumns, scores, delta_[i], args_.scale);
    }
    add_to_keys(scores_, douts_, shape_.padded_value_dim, args_.dv, start, width);
    add_to_keys(dscores_, queries_, shape_.padded_dim, args_.dk, start, width);
    isa_.multiply_block({.m = rows_,
                         .n = shape_.padded_dim,
                         .k = width,
                         .a = dscores_,
                         .a_row_stride = kScoreColumns,
                         .a_column_stride = 1,
                         .b = keys_,
                         .ldb = shape_.padded_dim,
                         .c = dqueries_,
                         .ldc = shape_.padded_dim,
                         .accumulate = true});
  }

  // gradient[key start + j] += sum over rows of weights[row][j] * source[row]. Selected keys are
  // not adjacent, so each key has a product of its own.
  void add_to_keys(const float* weights, const float* source, int64_t source_stride,
                   const Tensor& gradient, int64_t start, int64_t width) {
    const int64_t step = walk_.ids == nullptr ? width : 1;
    for (int64_t j = 0; j < width; j += step)
      add_to_rows(weights + j, source, source_stride, gradient, walk_[start + j], step);
  }
  void add_to_rows(const float* weights, const float* source, int64_t source_stride,
                   const Tensor& gradient, int64_t first_key, int64_t num_keys) {
    isa_.multiply_block({.m = num_keys,
                         .n = gradient.dim(2),
                         .k = rows_,
                         .a = weights,
                         .a_row_stride = 1,
                         .a_column_stride = kScoreColumns,
                         .b = source,
                         .ldb = source_stride,
                         .c = HeadRows(gradient, kv_head_)[group_.first_key + first_key],
                         .ldc = gradient.stride(0),
                         .accumulate = true});
  }

  const KernelTable& isa_;
  const BackwardArguments& args_;
  const AttentionShape& shape_;
  const KeyGroup group_;
  const int64_t kv_head_;
  int64_t first_row_ = 0, context_ = 0;  // of the current sequence
  int64_t first_token_ = 0, rows_ = 0;   // of the current tile
  KeyWalk walk_;
  float *queries_, *douts_, *dqueries_, *packed_queries_, *packed_douts_, *scores_, *dscores_,
      *keys_transposed_, *values_transposed_, *keys_, *lse_, *delta_;
};

}  // namespace

void attention_backward(Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor q, Tensor k, Tensor v,
                        Tensor out, Tensor lse, const AttentionLayout& layout, float scale) {
  const KernelTable& isa = kernels();
  const AttentionShape shape(q, k, out, layout, isa);
  const BackwardArguments args{dq, dk, dv, dout, q, k, v, out, lse, layout, scale};
  const std::vector<KeyGroup> groups = list_key_groups(layout);
  parallel_for(std::ssize(groups) * shape.kv_heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      BackwardHead(isa, args, shape, groups[static_cast<size_t>(i / shape.kv_heads)],
                   i % shape.kv_heads)
          .run();
  });
}

}  // namespace slimexx::ops::cpu
