// Queries, weights and keys of the indexer for device tests, packed and paged, with bf16 values.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "ops/cuda/attention_cuda_problem.h"
#include "slimexx/base/philox.h"

namespace slimexx::ops::testing {

inline constexpr uint64_t kIndexSeed = 37;
inline constexpr float kUnwritten = 77;
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct IndexCase {
  std::vector<int32_t> lengths;
  int64_t heads, dim;
};

// Tiles have 256 / heads queries, with heads padded to 16, 32 or 64; blocks have 64 keys.
inline std::vector<IndexCase> index_cases() {
  return {{{1}, 1, 8},          {{5, 0, 3}, 16, 16},  {{64, 65, 1, 129}, 32, 128},
          {{300, 17}, 64, 128}, {{130, 33}, 5, 40},   {{70, 200}, 64, 64},
          {{33}, 17, 72},       {{2, 2049}, 32, 128}, {std::vector<int32_t>(75, 7), 16, 16}};
}
inline std::string name_of(const IndexCase& c) {
  std::string name = std::to_string(c.heads) + " heads of " + std::to_string(c.dim) + ", lengths";
  for (const int32_t length : c.lengths) name += " " + std::to_string(length);
  return name + ", seed " + std::to_string(kIndexSeed);
}

struct IndexProblem {
  IndexCase shape;
  std::vector<int32_t> cu{0};
  Array q, k, weights;
  float scale;

  explicit IndexProblem(const IndexCase& c) : shape(c) {
    for (const int32_t length : c.lengths) cu.push_back(cu.back() + length);
    q = random_bf16({cu.back(), c.heads, c.dim}, kIndexSeed);
    k = random_bf16({cu.back(), 1, c.dim}, kIndexSeed + 1);
    weights = Array::random({cu.back(), c.heads}, kIndexSeed + 2);
    scale = 1.0f / std::sqrt(static_cast<float>(c.dim));
  }
  int64_t num_tokens() const { return cu.back(); }
  int32_t longest() const { return *std::max_element(shape.lengths.begin(), shape.lengths.end()); }
  // Odd, so that rows are not aligned to 16 bytes.
  int64_t columns() const { return longest() + 3 + longest() % 2; }
  Array blank(int64_t rows) const {
    Array scores({rows, columns()});
    scores.fill(kUnwritten);
    return scores;
  }
};

// Key rows in shuffled pages; slots that no sequence uses hold NaN.
struct IndexPages {
  int64_t page_tokens;
  Array keys, table;

  IndexPages(const IndexProblem& p, int64_t tokens_per_page) : page_tokens(tokens_per_page) {
    const auto num_sequences = static_cast<int64_t>(p.shape.lengths.size());
    const int64_t per_sequence = (p.longest() + page_tokens - 1) / page_tokens;
    keys = Array({num_sequences * per_sequence, page_tokens, 1, p.shape.dim});
    keys.fill(kNan);
    table = Array({num_sequences, per_sequence}, DType::kI32);
    int32_t* pages = table.view().i32();
    std::iota(pages, pages + table.size(), 0);
    PhiloxStream stream(3, 1);
    for (auto i = static_cast<uint64_t>(table.size()); i > 1; --i)
      std::swap(pages[i - 1], pages[stream.next_below(i)]);
  }
  int32_t slot(size_t sequence, int32_t position) const {
    const int64_t entry =
        static_cast<int64_t>(sequence) * table.view().dim(1) + position / page_tokens;
    return static_cast<int32_t>(table.view().i32()[entry] * page_tokens + position % page_tokens);
  }
};

// Positions [begin[b], end[b]) of every sequence as one paged batch.
struct PagedBatch {
  const IndexProblem& p;
  const IndexPages& pages;
  std::vector<int32_t> cu{0}, context, slots;
  std::vector<int64_t> rows;  // rows of the packed problem

  PagedBatch(const IndexProblem& problem, const IndexPages& own_pages,
             const std::vector<int32_t>& begin, const std::vector<int32_t>& end)
      : p(problem), pages(own_pages) {
    for (size_t b = 0; b < begin.size(); ++b) {
      cu.push_back(cu.back() + end[b] - begin[b]);
      context.push_back(begin[b]);
      for (int32_t position = begin[b]; position < end[b]; ++position) {
        slots.push_back(pages.slot(b, position));
        rows.push_back(p.cu[b] + position);
      }
    }
  }
  int64_t num_rows() const { return std::ssize(rows); }
  Array take(const Array& from, int64_t heads) const {
    const int64_t width = from.size() / p.num_tokens();
    Array some({num_rows(), heads, width / heads});
    for (int64_t i = 0; i < num_rows(); ++i)
      std::copy_n(from.view().f32() + rows[static_cast<size_t>(i)] * width, width,
                  some.view().f32() + i * width);
    return some;
  }
  Array take_weights() const {
    Array some({num_rows(), p.shape.heads});
    const Array from = take(p.weights, p.shape.heads);
    std::copy_n(from.view().f32(), from.size(), some.view().f32());
    return some;
  }
  AttentionLayout on_cpu() const { return {cu, context, pages.table, pages.page_tokens}; }
};

// The lengths and the page table of a paged batch, on the device.
struct DeviceLengths {
  OnDevice cu, context, table;
  explicit DeviceLengths(const PagedBatch& batch)
      : cu(integers_on_device(batch.cu)),
        context(integers_on_device(batch.context)),
        table(batch.pages.table) {}
  AttentionLayout layout(const PagedBatch& batch) const {
    AttentionLayout l = batch.on_cpu();
    l.page_table = table;
    l.device_cu_seqlens = cu;
    l.device_context_lens = context;
    return l;
  }
};

}  // namespace slimexx::ops::testing
