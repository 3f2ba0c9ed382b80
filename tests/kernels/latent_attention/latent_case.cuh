// A case of latent attention: sequences of latent rows, queries of all or of their last positions,
// and the batches that the forward may cut them into. The check and the benchmark use the same.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "slimexx/kernels/latent_attention.h"
#include "tests/kernels/normal_values.cuh"
#include "tests/kernels/rows/rows_arrays.h"

namespace slimexx::kernels::testing {

struct LatentCase {
  std::vector<int32_t> lengths;
  int64_t heads = 1, values = 512, rotary = 64;
  int64_t list = 0;  // keys that a query sees; 0: all up to its own
  int32_t last = 0;  // a sequence's last positions that have queries; 0: all
  int64_t gap = 0;   // elements after each row of keys and of outputs
  uint64_t seed = 1;

  int64_t width() const { return values + rotary; }
  int64_t key_row() const { return width() + gap; }
  int64_t out_row() const { return heads * values + gap; }
  float scale() const { return 2.0f / std::sqrt(static_cast<float>(width())); }
  int32_t first_query(size_t sequence) const {
    return last == 0 ? 0 : std::max(0, lengths[sequence] - last);
  }
};

inline std::string describe(const LatentCase& c) {
  std::string name = "latent attention " + std::to_string(c.heads) + " heads, " +
                     std::to_string(c.values) + " + " + std::to_string(c.rotary);
  if (c.list > 0) name += ", lists of " + std::to_string(c.list);
  name += ", seed " + std::to_string(c.seed) + ", lengths";
  for (size_t b = 0; b < std::min<size_t>(c.lengths.size(), 8); ++b)
    name += " " + std::to_string(c.lengths[b]);
  return name;
}

// Queries at positions [from, to) of a sequence.
struct LatentChunk {
  size_t sequence;
  int32_t from, to;
};

// `k` keys of those up to `position`, one from each of k equal parts; all if there are no more.
inline void draw_list(int32_t* list, int32_t position, int64_t k, std::mt19937_64& random) {
  const int64_t keys = int64_t{position} + 1, count = std::min(k, keys);
  std::fill_n(list, k, -1);
  for (int64_t j = 0; j < count; ++j) {
    const int64_t begin = keys * j / count, end = keys * (j + 1) / count;
    list[j] = static_cast<int32_t>(
        begin + static_cast<int64_t>(random() % static_cast<uint64_t>(end - begin)));
  }
}

inline void fill_latent(const Bf16Array& array, int64_t count, uint64_t seed) {
  if (count == 0) return;
  fill_normal<<<1024, 256>>>(reinterpret_cast<__nv_bfloat16*>(array.data()), count, seed, 1.0f);
  SLX_CUDA(cudaGetLastError());
}

struct LatentOperands {
  explicit LatentOperands(const LatentCase& c)
      : of(c),
        q_starts(starts(c, true)),
        key_starts(starts(c, false)),
        q(q_starts.back() * c.heads * c.width()),
        keys(key_starts.back() * c.key_row()) {
    fill_latent(q, q_starts.back() * c.heads * c.width(), c.seed);
    fill_latent(keys, key_starts.back() * c.key_row(), c.seed + 1);
    lists.resize(static_cast<size_t>(q_starts.back() * c.list));
    std::mt19937_64 random(c.seed + 2);
    for (size_t b = 0; b < c.lengths.size() && c.list > 0; ++b)
      for (int32_t p = c.first_query(b); p < c.lengths[b]; ++p)
        draw_list(lists.data() + query_row(b, p) * c.list, p, c.list, random);
    SLX_CUDA(cudaDeviceSynchronize());
  }
  int64_t query_row(size_t sequence, int32_t position) const {
    return q_starts[sequence] + position - of.first_query(sequence);
  }
  // All queries.
  std::vector<LatentChunk> whole() const {
    std::vector<LatentChunk> chunks;
    for (size_t b = 0; b < of.lengths.size(); ++b)
      chunks.push_back({b, of.first_query(b), of.lengths[b]});
    return chunks;
  }

  LatentCase of;
  std::vector<int64_t> q_starts, key_starts;  // [sequences + 1], rows
  Bf16Array q, keys;                          // [queries, heads, width], [keys, key_row]
  std::vector<int32_t> lists;                 // [queries, list]

 private:
  static std::vector<int64_t> starts(const LatentCase& c, bool queries) {
    std::vector<int64_t> all = {0};
    for (size_t b = 0; b < c.lengths.size(); ++b)
      all.push_back(all.back() + c.lengths[b] - (queries ? c.first_query(b) : 0));
    return all;
  }
};

// How a batch is divided among the kernels; no choice changes a bit.
enum class LatentRuns {
  kWhole,  // every sequence is walked whole
  kAuto,   // as the engine chooses
  kTight,  // likewise, with room for the partial results of few tokens
  kSplit,  // every sequence by segments
};

inline AttentionRuns choose_latent_runs(const std::vector<int32_t>& cu,
                                        const std::vector<int32_t>& context, int64_t heads,
                                        LatentRuns kind) {
  const int64_t most = kind == LatentRuns::kWhole   ? 0
                       : kind == LatentRuns::kTight ? static_cast<int64_t>(cu.size()) - 1
                                                    : INT32_MAX;
  const AttentionRuns runs = choose_attention_runs(cu, context, latent_group(heads), most);
  if (kind != LatentRuns::kSplit || runs.whole.sequences == 0) return runs;
  AttentionRun split = runs.split;
  split.sequences += runs.whole.sequences;
  split.max_query_len = std::max(split.max_query_len, runs.whole.max_query_len);
  split.max_key_len = std::max(split.max_key_len, runs.whole.max_key_len);
  return {runs.few, split, {}, cu.back()};
}

struct LatentStorage {
  int64_t page_tokens = 0;  // 0: packed
  LatentRuns runs = LatentRuns::kWhole;
  bool has_lse = true;
};

// A sequence's row `blockIdx.x` to its page.
static __global__ void scatter_to_pages(uint16_t* pages, const uint16_t* rows, const int32_t* table,
                                        int row, int page_tokens) {
  const int64_t position = blockIdx.x;
  const int64_t slot =
      int64_t{table[position / page_tokens]} * page_tokens + position % page_tokens;
  for (int i = threadIdx.x; i < row; i += blockDim.x)
    pages[slot * row + i] = rows[position * row + i];
}

// Chunks as one batch. Packed chunks begin at position 0. Slots that no key uses are NaN.
struct LatentBatch {
  LatentBatch(const LatentOperands& o, const std::vector<LatentChunk>& chunks,
              const LatentStorage& storage)
      : layout(o, chunks, storage.page_tokens),
        cu(layout.cu),
        context(layout.context),
        table(layout.table),
        lists(layout.lists),
        q(layout.cu.back() * o.of.heads * o.of.width()),
        keys(layout.key_rows * o.of.key_row()),
        out(layout.cu.back() * o.of.out_row()),
        lse(layout.cu.back() * o.of.heads) {
    copy_rows(o, chunks, storage.page_tokens);
    describe(o.of, storage);
    problem.workspace_bytes = latent_attention_forward_workspace(problem);
    workspace = std::make_unique<Array<uint8_t>>(static_cast<int64_t>(problem.workspace_bytes));
    problem.workspace = workspace->data();
    SLX_CUDA(cudaDeviceSynchronize());
  }

  struct Layout {
    std::vector<int32_t> cu{0}, context, table, lists;
    int64_t table_width = 0, key_rows = 0;

    Layout(const LatentOperands& o, const std::vector<LatentChunk>& chunks, int64_t page_tokens) {
      int64_t pages = 0;
      for (const LatentChunk& c : chunks) {
        cu.push_back(cu.back() + c.to - c.from);
        context.push_back(c.from);
        const auto list = o.lists.begin() + o.query_row(c.sequence, c.from) * o.of.list;
        lists.insert(lists.end(), list, list + (c.to - c.from) * o.of.list);
        if (page_tokens == 0) continue;
        const int64_t own = (c.to + page_tokens - 1) / page_tokens;
        table_width = std::max(table_width, own);
        pages += own;
      }
      key_rows = page_tokens == 0 ? cu.back() : std::max<int64_t>(pages, 1) * page_tokens;
      if (page_tokens == 0) return;
      std::vector<int32_t> order(static_cast<size_t>(pages));
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), std::mt19937_64(o.of.seed + page_tokens));
      table.assign(chunks.size() * static_cast<size_t>(table_width), 0);
      auto next = order.begin();
      for (size_t i = 0; i < chunks.size(); ++i) {
        const int64_t own = (chunks[i].to + page_tokens - 1) / page_tokens;
        std::copy_n(next, own, table.begin() + static_cast<int64_t>(i) * table_width);
        next += own;
      }
    }
  };

  Layout layout;
  Array<int32_t> cu, context, table, lists;
  Bf16Array q, keys, out;
  FloatArray lse;
  std::unique_ptr<Array<uint8_t>> workspace;
  LatentAttentionForward problem;

 private:
  void copy_rows(const LatentOperands& o, const std::vector<LatentChunk>& chunks,
                 int64_t page_tokens) {
    const int64_t q_row = o.of.heads * o.of.width(), key_row = o.of.key_row();
    for (size_t i = 0; i < chunks.size(); ++i) {
      const LatentChunk& c = chunks[i];
      SLX_CUDA(cudaMemcpy(
          q.data() + layout.cu[i] * q_row, o.q.data() + o.query_row(c.sequence, c.from) * q_row,
          static_cast<size_t>((c.to - c.from) * q_row) * 2, cudaMemcpyDeviceToDevice));
      const uint16_t* from = o.keys.data() + o.key_starts[c.sequence] * key_row;
      if (page_tokens == 0) {
        SLX_CUDA(cudaMemcpy(keys.data() + layout.cu[i] * key_row, from,
                            static_cast<size_t>(c.to * key_row) * 2, cudaMemcpyDeviceToDevice));
      } else if (c.to > 0) {
        scatter_to_pages<<<static_cast<unsigned>(c.to), 128>>>(
            keys.data(), from, table.data() + static_cast<int64_t>(i) * layout.table_width,
            static_cast<int>(key_row), static_cast<int>(page_tokens));
      }
    }
    SLX_CUDA(cudaGetLastError());
  }
  void describe(const LatentCase& c, const LatentStorage& storage) {
    const bool paged = storage.page_tokens > 0;
    problem.q = q.data(), problem.keys = keys.data(), problem.out = out.data();
    problem.lse = storage.has_lse ? lse.data() : nullptr;
    problem.key_stride = c.key_row(), problem.out_stride = c.out_row();
    problem.cu_seqlens = cu.data();
    if (paged) {
      problem.context_lens = context.data();
      problem.page_table = table.data(), problem.page_table_stride = layout.table_width;
      problem.pages = layout.key_rows / storage.page_tokens;
      problem.page_tokens = storage.page_tokens;
      problem.context_is_written = true;
    }
    problem.tokens = layout.cu.back(), problem.query_heads = c.heads;
    problem.value_dim = c.values, problem.rotary_dim = c.rotary;
    problem.runs = choose_latent_runs(layout.cu, layout.context, c.heads, storage.runs);
    if (c.list > 0) problem.selected = lists.data(), problem.list_width = c.list;
    problem.scale = c.scale();
  }
};

}  // namespace slimexx::kernels::testing
