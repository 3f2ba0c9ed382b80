// A case of latent attention, shared by the check and the benchmark: sequences of latent rows,
// queries at all or at their last positions, and the batches into which the forward may divide
// them.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "slimexx/kernels/latent_attention.h"
#include "tests/kernels/chunks.cuh"
#include "tests/kernels/rows/f8_rows.h"
#include "tests/kernels/rows/rows_arrays.h"

namespace slimexx::kernels::testing {

struct LatentCase {
  std::vector<int32_t> lengths;
  int64_t heads = 1, values = 512, rotary = 64;
  int64_t list = 0;  // keys that a query sees; 0: all up to its own
  int32_t last = 0;  // number of positions at the end of each sequence that have queries; 0: all
  int64_t gap = 0;   // elements after each row of keys and of outputs
  uint64_t seed = 1;
  // FP8 keys: packed batches have the dequantised rows, paged ones rows of bytes. `spread`: scales
  // of groups vary by powers of two from 2^-spread to 2^spread.
  bool f8 = false;
  int spread = 0;

  int64_t width() const { return values + rotary; }
  int64_t key_row() const { return width() + gap; }
  int64_t f8_row() const { return tensor::latent_f8_row_bytes(values, rotary) / 2 + gap; }
  int64_t out_row() const { return heads * values + gap; }
  float scale() const { return 2.0f / std::sqrt(static_cast<float>(width())); }
};

inline std::string describe(const LatentCase& c) {
  std::string name = "latent attention " + std::to_string(c.heads) + " heads, " +
                     std::to_string(c.values) + " + " + std::to_string(c.rotary);
  if (c.f8) name += ", FP8 keys spread by " + std::to_string(c.spread);
  if (c.list > 0) name += ", lists of " + std::to_string(c.list);
  name += ", seed " + std::to_string(c.seed) + ", lengths";
  for (size_t b = 0; b < std::min<size_t>(c.lengths.size(), 8); ++b)
    name += " " + std::to_string(c.lengths[b]);
  return name;
}

// `k` of the keys up to `position`, one from each of k equal parts; all keys if there are at most
// k.
inline void draw_list(int32_t* list, int32_t position, int64_t k, std::mt19937_64& random) {
  const int64_t keys = int64_t{position} + 1, count = std::min(k, keys);
  std::fill_n(list, k, -1);
  for (int64_t j = 0; j < count; ++j) {
    const int64_t begin = keys * j / count, end = keys * (j + 1) / count;
    list[j] = static_cast<int32_t>(
        begin + static_cast<int64_t>(random() % static_cast<uint64_t>(end - begin)));
  }
}

struct LatentOperands {
  explicit LatentOperands(const LatentCase& c)
      : of(c),
        sequences(c.lengths, c.last),
        q(sequences.num_queries() * c.heads * c.width()),
        keys(sequences.num_keys() * c.key_row()),
        f8_keys(c.f8 ? sequences.num_keys() * c.f8_row() : 0),
        lists(static_cast<size_t>(sequences.num_queries() * c.list)) {
    fill(q, sequences.num_queries() * c.heads * c.width(), c.seed);
    fill(keys, sequences.num_keys() * c.key_row(), c.seed + 1);
    if (c.f8) round_keys();
    std::mt19937_64 random(c.seed + 2);
    for (const Chunk& whole : sequences.whole())
      for (int32_t p = whole.from; p < whole.to && c.list > 0; ++p)
        draw_list(lists.data() + sequences.query_row(whole.sequence, p) * c.list, p, c.list,
                  random);
    SLX_CUDA(cudaDeviceSynchronize());
  }

  LatentCase of;
  Sequences sequences;
  Bf16Array q, keys;           // [queries, heads, width], [keys, key_row]
  Bf16Array f8_keys;           // [keys, f8_row]: the bytes of the same keys
  std::vector<int32_t> lists;  // [queries, list]

 private:
  void round_keys() {
    SLX_CUDA(cudaDeviceSynchronize());
    Bits rows = keys.get();
    if (of.spread > 0) spread_groups(rows, of.key_row(), of.values, of.spread, of.seed + 3);
    f8_keys.set(round_latent(rows, of.key_row(), of.values, of.rotary, of.gap));
    keys.set(rows);
  }
};

// How a batch is divided among the kernels; the division changes no bit.
enum class LatentRuns {
  kWhole,  // no sequence is split
  kAuto,   // as the engine chooses
  kTight,  // like kAuto, with room for partial results of only a few tokens
  kSplit,  // every sequence is split into segments
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
  bool bf16 = false;  // bf16 keys in a case of FP8 keys
};

// Several chunks as one batch. Slots of pages that no key uses are NaN.
struct LatentBatch {
  LatentBatch(const LatentOperands& o, const std::vector<Chunk>& chunks,
              const LatentStorage& storage)
      : has_f8(o.of.f8 && !storage.bf16 && storage.page_tokens > 0),
        layout(chunks, storage.page_tokens, o.of.seed + static_cast<uint64_t>(storage.page_tokens)),
        cu(layout.cu),
        context(layout.context),
        table(layout.table),
        lists(take_lists(o, chunks)),
        q(layout.num_queries() * o.of.heads * o.of.width()),
        keys(layout.key_rows * (has_f8 ? o.of.f8_row() : o.of.key_row())),
        out(layout.num_queries() * o.of.out_row()),
        lse(layout.num_queries() * o.of.heads) {
    copy_queries(q, o.q, o.sequences, chunks, o.of.heads * o.of.width());
    copy_keys(keys, has_f8 ? o.f8_keys : o.keys, o.sequences, chunks, layout, table.data(),
              has_f8 ? o.of.f8_row() : o.of.key_row());
    describe(o.of, storage);
    problem.workspace_bytes = latent_attention_forward_workspace(problem);
    workspace = std::make_unique<Array<uint8_t>>(static_cast<int64_t>(problem.workspace_bytes));
    problem.workspace = workspace->data();
    SLX_CUDA(cudaDeviceSynchronize());
  }

  bool has_f8;  // keys are rows of bytes
  ChunkLayout layout;
  Array<int32_t> cu, context, table, lists;
  Bf16Array q, keys, out;
  FloatArray lse;
  std::unique_ptr<Array<uint8_t>> workspace;
  LatentAttentionForward problem;

 private:
  static std::vector<int32_t> take_lists(const LatentOperands& o,
                                         const std::vector<Chunk>& chunks) {
    std::vector<int32_t> lists;
    for (const Chunk& c : chunks) {
      const auto list = o.lists.begin() + o.sequences.query_row(c.sequence, c.from) * o.of.list;
      lists.insert(lists.end(), list, list + (c.to - c.from) * o.of.list);
    }
    return lists;
  }
  void describe(const LatentCase& c, const LatentStorage& storage) {
    problem.q = q.data(), problem.keys = keys.data(), problem.out = out.data();
    problem.lse = storage.has_lse ? lse.data() : nullptr;
    problem.key_stride = has_f8 ? 2 * c.f8_row() : c.key_row(), problem.out_stride = c.out_row();
    problem.f8_keys = has_f8;
    problem.cu_seqlens = cu.data();
    if (layout.is_paged()) {
      problem.context_lens = context.data();
      problem.page_table = table.data(), problem.page_table_stride = layout.table_width;
      problem.pages = layout.key_rows / storage.page_tokens;
      problem.page_tokens = storage.page_tokens;
      problem.context_is_written = true;
    }
    problem.tokens = layout.num_queries(), problem.query_heads = c.heads;
    problem.value_dim = c.values, problem.rotary_dim = c.rotary;
    problem.runs = choose_latent_runs(layout.cu, layout.context, c.heads, storage.runs);
    if (c.list > 0) problem.selected = lists.data(), problem.list_width = c.list;
    problem.scale = c.scale();
  }
};

}  // namespace slimexx::kernels::testing
