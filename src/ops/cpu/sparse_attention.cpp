#include "slimexx/ops/sparse_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "ops/cpu/attention.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/isa/isa.h"
#include "ops/cpu/scratch.h"
#include "slimexx/base/thread_pool.h"

namespace slimexx::ops::cpu {
namespace {

// Consecutive queries of one sequence; the first is row `row` of the batch, at `position`.
struct QueryRun {
  int64_t sequence, row, num_rows, position;
};

// Splits rows [begin, end) of a batch into runs of at most `most` rows.
std::vector<QueryRun> list_runs(const AttentionLayout& layout, int64_t begin, int64_t end,
                                int64_t most) {
  std::vector<QueryRun> runs;
  for (size_t b = 0; b + 1 < layout.cu_seqlens.size(); ++b) {
    const int64_t first = layout.cu_seqlens[b];
    const int64_t last = std::min<int64_t>(end, layout.cu_seqlens[b + 1]);
    for (int64_t row = std::max(begin, first); row < last; row += most)
      runs.push_back({.sequence = static_cast<int64_t>(b),
                      .row = row,
                      .num_rows = std::min(most, last - row),
                      .position = layout.context_len(b) + row - first});
  }
  return runs;
}

struct ScoreArguments {
  Tensor scores, q, weights;
  const CacheRows& k;
  const AttentionLayout& layout;
  int64_t first_row;
  float scale;
};

// Scores for all keys of a run, one block of keys at a time. Rows of a tile are (query, head),
// heads fastest.
class ScoreTile {
 public:
  ScoreTile(const KernelTable& isa, const ScoreArguments& args, const QueryRun& run)
      : isa_(isa), args_(args), run_(run), heads_(args.q.dim(1)), dim_(args.q.dim(2)) {
    const int64_t rows = run.num_rows * heads_;
    ScratchCarver carver(thread_scratch(
        Scratch::kAttention, rows * (2 * dim_ + kScoreColumns) + 2 * dim_ * kScoreColumns + 512));
    queries_ = carver.take(rows * dim_);
    packed_ = carver.take(rows * dim_ + 16);
    products_ = carver.take(rows * kScoreColumns);
    keys_ = carver.take(dim_ * kScoreColumns + 16);
    converted_ = carver.take(dim_ * kScoreColumns);
  }

  void run() {
    const int64_t rows = run_.num_rows * heads_, row = heads_ * dim_;
    const int64_t first = run_.row - args_.first_row;
    for (int64_t t = 0; t < run_.num_rows; ++t)
      std::memcpy(queries_ + t * row, args_.q.f32() + (first + t) * args_.q.stride(0),
                  static_cast<size_t>(row) * sizeof(float));
    isa_.pack_a(queries_, dim_, 1, rows, dim_, packed_);
    const KeyRows k(args_.k, args_.layout, run_.sequence, 0, dim_);
    const int64_t num_keys = run_.position + run_.num_rows;
    for (int64_t start = 0; start < num_keys; start += kAttentionBlock) {
      load_keys(k, start, std::min(kAttentionBlock, num_keys - start));
      multiply_scores(isa_, rows, dim_, packed_, keys_, products_);
      for (int64_t t = 0; t < run_.num_rows; ++t)
        add_heads(first + t, products_ + t * heads_ * kScoreColumns, start,
                  std::clamp<int64_t>(run_.position + t + 1 - start, 0, kAttentionBlock));
    }
  }

 private:
  void load_keys(const KeyRows& k, int64_t start, int64_t width) {
    const float* rows[kAttentionBlock];
    for (int64_t j = 0; j < width; ++j) rows[j] = k.load(start + j, converted_ + j * dim_);
    isa_.transpose_rows(rows, width, dim_, keys_);
  }

  // Keeps a NaN (max would drop it): select_keys must see it.
  void add_heads(int64_t row, const float* products, int64_t start, int64_t seen) const {
    const float* weights = args_.weights.f32() + row * heads_;
    float* scores = args_.scores.f32() + row * args_.scores.dim(1) + start;
    std::fill_n(scores, seen, 0.0f);
    for (int64_t h = 0; h < heads_; ++h, products += kScoreColumns)
      for (int64_t j = 0; j < seen; ++j) {
        const float scaled = products[j] * args_.scale;
        scores[j] += weights[h] * (scaled < 0.0f ? 0.0f : scaled);
      }
  }

  const KernelTable& isa_;
  const ScoreArguments& args_;
  const QueryRun run_;
  const int64_t heads_, dim_;
  float *queries_, *packed_, *products_, *keys_, *converted_;
};

float or_least(float score) {
  return std::isnan(score) ? -std::numeric_limits<float>::infinity() : score;
}

// Writes the ids of the k largest of n scores, in ascending order; n > k.
void select_largest(const float* scores, int64_t n, int64_t k, int32_t* ids) {
  float* sorted = thread_scratch(Scratch::kAttention, n);
  std::transform(scores, scores + n, sorted, or_least);
  std::nth_element(sorted, sorted + k - 1, sorted + n, std::greater<>());
  const float least = sorted[k - 1];
  // All scores above `least` are among the k largest; the others of the k equal `least`.
  int64_t equals = std::count(sorted, sorted + k, least);
  for (int64_t j = 0; j < n; ++j) {
    const float score = or_least(scores[j]);
    if (score > least || (score == least && equals-- > 0)) *ids++ = static_cast<int32_t>(j);
  }
}

}  // namespace

void index_scores(Tensor scores, Tensor q, Tensor weights, const CacheRows& k,
                  const AttentionLayout& layout, int64_t first_row, int64_t top_k, float scale) {
  const KernelTable& isa = kernels();
  const ScoreArguments args{scores, q, weights, k, layout, first_row, scale};
  const int64_t most = std::max<int64_t>(1, kAttentionTileRows / q.dim(1));
  const std::vector<QueryRun> runs = list_runs(layout, first_row, first_row + q.dim(0), most);
  parallel_for(std::ssize(runs), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const QueryRun& run = runs[static_cast<size_t>(i)];
      if (run.position + run.num_rows > top_k) ScoreTile(isa, args, run).run();
    }
  });
}

void select_keys(Tensor selected, Tensor scores, const AttentionLayout& layout, int64_t first_row) {
  const int64_t k = selected.dim(1);
  const std::vector<QueryRun> runs = list_runs(layout, first_row, first_row + selected.dim(0), 1);
  parallel_for(std::ssize(runs), 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const QueryRun& run = runs[static_cast<size_t>(i)];
      const int64_t row = run.row - first_row, num_keys = run.position + 1;
      int32_t* ids = selected.i32() + row * k;
      if (num_keys > k) {
        select_largest(scores.f32() + row * scores.dim(1), num_keys, k, ids);
        continue;
      }
      std::iota(ids, ids + num_keys, 0);
      std::fill(ids + num_keys, ids + k, -1);
    }
  });
}

}  // namespace slimexx::ops::cpu
