// A problem with random queries, keys and values of several sequences, packed and paged.
#pragma once
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "ops/op_cases.h"
#include "ops/testing.h"
#include "slimexx/ops/attention.h"

namespace slimexx::ops::testing {

struct Problem {
  cases::AttentionCase shape;
  std::vector<int32_t> cu{0};
  Array q, k, v;
  float scale;

  explicit Problem(const cases::AttentionCase& c, uint64_t seed = 11) : shape(c) {
    for (int32_t length : c.lengths) cu.push_back(cu.back() + length);
    q = Array::random({cu.back(), c.query_heads, c.dim}, seed);
    k = Array::random({cu.back(), c.kv_heads, c.dim}, seed + 1);
    v = Array::random({cu.back(), c.kv_heads, c.dim}, seed + 2);
    scale = 1.0f / std::sqrt(static_cast<float>(c.dim));
  }
  AttentionLayout packed() const { return {cu, {}, {}, 0}; }
  int64_t num_tokens() const { return cu.back(); }
  Array output() const { return Array({cu.back(), shape.query_heads, shape.dim}); }
  Array row_statistics() const { return Array({cu.back(), shape.query_heads}); }
};

// Keys and values of a problem in shuffled pages of `page_tokens` tokens; unused slots hold NaN.
struct Pages {
  int64_t page_tokens;
  Array k, v, table;

  Pages(const Problem& p, int64_t tokens_per_page) : page_tokens(tokens_per_page) {
    const auto num_sequences = static_cast<int64_t>(p.shape.lengths.size());
    const int64_t longest = *std::max_element(p.shape.lengths.begin(), p.shape.lengths.end());
    const int64_t per_sequence = (longest + page_tokens - 1) / page_tokens;
    const int64_t num_pages = num_sequences * per_sequence;
    k = Array({num_pages, page_tokens, p.shape.kv_heads, p.shape.dim});
    v = Array({num_pages, page_tokens, p.shape.kv_heads, p.shape.dim});
    k.fill(std::nanf(""));
    v.fill(std::nanf(""));
    std::vector<int32_t> order(static_cast<size_t>(num_pages));
    std::iota(order.begin(), order.end(), 0);
    PhiloxStream stream(3, 1);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[stream.next_below(i)]);
    table = Array({num_sequences, per_sequence}, DType::kI32);
    std::copy(order.begin(), order.end(), table.view().i32());
  }
  int32_t slot(int64_t sequence, int64_t position) const {
    const int64_t page =
        table.view().i32()[sequence * table.view().dim(1) + position / page_tokens];
    return static_cast<int32_t>(page * page_tokens + position % page_tokens);
  }
};

// Rows `begin[b]` to `end[b]` of each sequence of a problem, as one batch.
struct Chunk {
  std::vector<int32_t> cu{0}, context, slots, rows;
  Chunk(const Problem& p, const Pages& pages, const std::vector<int32_t>& begin,
        const std::vector<int32_t>& end) {
    for (size_t b = 0; b < begin.size(); ++b) {
      cu.push_back(cu.back() + end[b] - begin[b]);
      context.push_back(begin[b]);
      for (int32_t position = begin[b]; position < end[b]; ++position) {
        slots.push_back(pages.slot(static_cast<int64_t>(b), position));
        rows.push_back(p.cu[b] + position);
      }
    }
  }
};

}  // namespace slimexx::ops::testing
