// A case of key selection for sparse attention, shared by the check and the benchmark: index
// queries, weights and keys of sequences, and the batches and runs of rows into which they may be
// divided.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "slimexx/kernels/sparse_index.h"
#include "tests/kernels/chunks.cuh"
#include "tests/kernels/fill.cuh"
#include "tests/kernels/rows/f8_rows.h"
#include "tests/kernels/rows/rows_arrays.h"

namespace slimexx::kernels::testing {

struct IndexCase {
  std::vector<int32_t> lengths;
  int64_t heads = 32, dim = 128;
  int32_t last = 0;  // number of positions at the end of each sequence that have queries; 0: all
  uint64_t seed = 1;
  // FP8 keys: packed batches have the dequantised keys, paged ones bytes and scales. `spread`:
  // scales vary by powers of two from 2^-spread to 2^spread.
  bool f8 = false;
  int spread = 0;

  float scale() const { return 1.0f / std::sqrt(static_cast<float>(dim)); }
};

inline std::string describe(const IndexCase& c) {
  std::string name = (c.f8 ? "index with FP8 keys of " : "index of ") + std::to_string(c.heads) +
                     " heads of " + std::to_string(c.dim) + ", seed " + std::to_string(c.seed) +
                     ", lengths";
  for (size_t b = 0; b < std::min<size_t>(c.lengths.size(), 8); ++b)
    name += " " + std::to_string(c.lengths[b]);
  return name;
}

struct IndexOperands {
  explicit IndexOperands(const IndexCase& c)
      : of(c),
        sequences(c.lengths, c.last),
        q(sequences.num_queries() * c.heads * c.dim),
        keys(sequences.num_keys() * c.dim),
        f8_keys(c.f8 ? sequences.num_keys() * c.dim / 2 : 0),
        f8_scales(c.f8 ? sequences.num_keys() : 0),
        weights(random_floats(sequences.num_queries() * c.heads, 0.1f)) {
    fill(q, sequences.num_queries() * c.heads * c.dim, c.seed);
    fill(keys, sequences.num_keys() * c.dim, c.seed + 1);
    SLX_CUDA(cudaDeviceSynchronize());
    if (c.f8) round_keys();
  }

  IndexCase of;
  Sequences sequences;
  Bf16Array q, keys;             // [queries, heads, dim], [keys, dim]
  Bf16Array f8_keys, f8_scales;  // the bytes of the same keys, [keys, dim / 2], and [keys]
  FloatArray weights;            // [queries, heads]

 private:
  void round_keys() {
    Bits rows = keys.get(), scales;
    if (of.spread > 0) spread_groups(rows, of.dim, of.dim, of.spread, of.seed + 2);
    std::vector<uint8_t> bytes(rows.size());
    for (size_t at = 0; at < rows.size(); at += static_cast<size_t>(of.dim)) {
      const float scale = round_group(rows.data() + at, bytes.data() + at, of.dim);
      scales.push_back(round_to_bf16(scale));
    }
    Bits pairs(bytes.size() / 2);
    std::memcpy(pairs.data(), bytes.data(), bytes.size());
    keys.set(rows), f8_keys.set(pairs), f8_scales.set(scales);
  }
};

struct IndexStorage {
  int64_t page_tokens = 0;  // 0: packed
  int64_t columns = 0;      // columns of the scores; 0: an odd number that is large enough
  int64_t most_keys = 0;    // the host's upper bound on the keys of a query; 0: their actual number
  int64_t padding = 0;      // rows after the last sequence's
  int64_t score_rows = 0;   // rows of scores computed at a time; 0: all
  bool bf16 = false;        // bf16 keys in a case of FP8 keys
};

// Several chunks as one batch. Slots of pages that no key uses, and padding, are NaN.
struct IndexBatch {
  IndexBatch(const IndexOperands& o, const std::vector<Chunk>& of_chunks, const IndexStorage& kind)
      : of(o.of),
        chunks(of_chunks),
        storage(kind),
        has_f8(o.of.f8 && !kind.bf16 && kind.page_tokens > 0),
        layout(chunks, storage.page_tokens, o.of.seed + static_cast<uint64_t>(storage.page_tokens)),
        cu(layout.cu),
        context(layout.context),
        table(layout.table),
        q(rows() * of.heads * of.dim),
        keys(layout.key_rows * (has_f8 ? of.dim / 2 : of.dim)),
        key_scales(has_f8 ? layout.key_rows : 0),
        weights(rows() * of.heads),
        columns(storage.columns > 0 ? storage.columns : (o.sequences.longest() + 3) | 1),
        scores((storage.score_rows > 0 ? storage.score_rows : rows()) * columns) {
    copy_queries(q, o.q, o.sequences, chunks, of.heads * of.dim);
    copy_queries(weights, o.weights, o.sequences, chunks, of.heads);
    copy_keys(keys, has_f8 ? o.f8_keys : o.keys, o.sequences, chunks, layout, table.data(),
              has_f8 ? of.dim / 2 : of.dim);
    if (has_f8) copy_keys(key_scales, o.f8_scales, o.sequences, chunks, layout, table.data(), 1);
    SLX_CUDA(cudaDeviceSynchronize());
  }
  int64_t rows() const { return layout.num_queries() + storage.padding; }

  // Rows [first, first + count) of the batch.
  IndexScores score(int64_t first, int64_t count, int64_t top_k) const {
    IndexScores s;
    s.rows = run_of(first, count);
    s.q = q.data() + first * of.heads * of.dim, s.q_stride = of.heads * of.dim;
    s.key_scales = has_f8 ? key_scales.data() : nullptr;
    s.keys = keys.data(), s.key_stride = of.dim, s.key_rows = layout.key_rows;
    s.weights = weights.data() + first * of.heads;
    s.scores = scores_of(first), s.score_stride = columns;
    s.heads = of.heads, s.head_dim = of.dim;
    if (layout.is_paged()) {
      s.page_table = table.data(), s.page_table_stride = layout.table_width;
      s.page_tokens = storage.page_tokens;
    }
    s.top_k = top_k, s.scale = of.scale();
    return s;
  }
  KeySelection select(int64_t first, int64_t count, int64_t k, int32_t* selected) const {
    return {.rows = run_of(first, count),
            .scores = scores_of(first),
            .selected = selected,
            .score_stride = columns,
            .k = k};
  }

  IndexCase of;
  std::vector<Chunk> chunks;
  IndexStorage storage;
  bool has_f8;  // keys are bytes
  ChunkLayout layout;
  Array<int32_t> cu, context, table;
  Bf16Array q, keys, key_scales;
  FloatArray weights;
  int64_t columns;
  FloatArray scores;  // [rows, columns]

 private:
  float* scores_of(int64_t first) const {
    return scores.data() + (storage.score_rows > 0 ? 0 : first * columns);
  }
  IndexRows run_of(int64_t first, int64_t count) const {
    IndexRows run{.cu_seqlens = cu.data(),
                  .context_lens = layout.is_paged() ? context.data() : nullptr,
                  .sequences = static_cast<int64_t>(chunks.size()),
                  .first_row = first,
                  .rows = count};
    for (size_t b = 0; b < chunks.size(); ++b) {
      const int64_t begin = std::max<int64_t>(layout.cu[b], first),
                    end = std::min<int64_t>(layout.cu[b + 1], first + count);
      if (begin >= end) continue;
      run.max_query_len = std::max(run.max_query_len, end - begin);
      run.max_key_len = std::max(run.max_key_len, chunks[b].from + end - layout.cu[b]);
    }
    if (storage.most_keys > 0) run.max_key_len = storage.most_keys;
    return run;
  }
};

}  // namespace slimexx::kernels::testing
