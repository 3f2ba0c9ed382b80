// Checks of index scores: values against the host's in double, and equal bits for any storage,
// chunks, runs of rows and batch.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/kernels/sparse_index/index_case.cuh"

namespace slimexx::kernels::testing {

inline const float kUnwritten = [] {
  const uint32_t bits = 0xffffffff;
  float f;
  std::memcpy(&f, &bits, sizeof(f));
  return f;
}();
inline bool is_unwritten(float f) { return std::memcmp(&f, &kUnwritten, sizeof(f)) == 0; }

// Tolerance of a score, a sum of fp32 chains, relative to the sum of the magnitudes of its terms.
inline constexpr double kScoreSlack = 0x1p-17;

// [rows, columns], `step` rows at a time.
inline std::vector<float> score(const IndexBatch& batch, int64_t step, int64_t top_k = 0) {
  for (int64_t first = 0; first < batch.rows(); first += step)
    expect_status(
        "index_scores",
        index_scores(batch.score(first, std::min(step, batch.rows() - first), top_k), nullptr),
        cudaSuccess);
  SLX_CUDA(cudaDeviceSynchronize());
  return batch.scores.get();
}

// The scores of all queries with bf16 keys, [queries, columns]; only keys up to a query's own
// position have scores.
inline std::vector<float> score_whole(const IndexOperands& o) {
  const IndexBatch batch(o, o.sequences.whole(),
                         {.page_tokens = o.of.last > 0 ? 64 : 0, .bf16 = true});
  return score(batch, std::max<int64_t>(1, batch.rows()));
}

// Compares the rows of `batch` with those of the run with all queries. A query with at most top_k
// keys may have only some scores.
inline void compare(const std::string& what, const IndexOperands& o,
                    const std::vector<float>& expected, const IndexBatch& batch, int64_t step,
                    int64_t top_k = 0) {
  std::vector<float> got = score(batch, step, top_k), want(got.size(), kUnwritten);
  const int64_t expected_columns = (o.sequences.longest() + 3) | 1;
  int64_t row = 0;
  for (const Chunk& c : batch.chunks)
    for (int32_t p = c.from; p < c.to; ++p, ++row) {
      const float* whole =
          expected.data() + o.sequences.query_row(c.sequence, p) * expected_columns;
      for (int64_t j = 0; j <= p; ++j) {
        float& own = want[row * batch.columns + j];
        own = whole[j];
        if (p < top_k && is_unwritten(got[row * batch.columns + j])) own = kUnwritten;
      }
    }
  expect_bits((what + ", page " + std::to_string(batch.storage.page_tokens) + ", " +
               std::to_string(step) + " rows at a time")
                  .c_str(),
              got, want, batch.columns);
}

// Checks every `step`-th query, about 3e8 products in total.
inline void check_values(const IndexOperands& o, const std::vector<float>& got) {
  double products = 0;
  for (const Chunk& c : o.sequences.whole())
    products += double(c.to - c.from) * double(c.from + c.to) / 2;
  products *= double(o.of.heads * o.of.dim);
  const int64_t step = static_cast<int64_t>(products / 3e8) | 1,
                columns = (o.sequences.longest() + 3) | 1;
  const Bits q = o.q.get(), keys = o.keys.get();
  const std::vector<float> weights = o.weights.get();
  for (const Chunk& c : o.sequences.whole())
    for (int32_t p = c.from; p < c.to; ++p) {
      const int64_t query = o.sequences.query_row(c.sequence, p);
      if (query % step != 0) continue;
      std::vector<Exact> expected;
      for (int64_t j = 0; j <= p; ++j) {
        const uint16_t* key = keys.data() + (o.sequences.first_key(c.sequence) + j) * o.of.dim;
        Exact sum;
        for (int64_t h = 0; h < o.of.heads; ++h) {
          const uint16_t* own = q.data() + (query * o.of.heads + h) * o.of.dim;
          double product = 0, size = 0;
          for (int64_t i = 0; i < o.of.dim; ++i) {
            const double term = double{to_float(own[i])} * to_float(key[i]);
            product += term;
            size += std::abs(term);
          }
          const double weight = double{o.of.scale()} * weights[query * o.of.heads + h];
          sum.value += weight * std::max(0.0, product);
          sum.magnitude += std::abs(weight) * size;
        }
        expected.push_back(sum);
      }
      const auto row = got.begin() + query * columns;
      expect_close(("scores of query " + std::to_string(query)).c_str(),
                   std::vector<float>(row, row + p + 1), expected, columns, kScoreSlack);
    }
}

inline void check_scores(const IndexCase& c, const std::vector<int64_t>& pages) {
  current_case = describe(c);
  current_seed = c.seed;
  const IndexOperands o(c);
  const std::vector<float> expected = score_whole(o);
  check_values(o, expected);
  const auto whole = o.sequences.whole();
  const int64_t first_page = c.last > 0 ? 64 : 0, all = o.sequences.num_queries();
  const auto batch = [&](const std::vector<Chunk>& chunks, const IndexStorage& storage) {
    return IndexBatch(o, chunks, storage);
  };
  compare("all", o, expected, batch(whole, {first_page}), all);
  compare("padded", o, expected, batch(whole, {.page_tokens = first_page, .padding = 3}), all + 3);
  const int64_t wide = 2 * o.sequences.longest() + 64;
  compare("a larger bound of keys", o, expected, batch(whole, {first_page, wide, wide}), all);
  for (const int64_t step : {1, 7, 100})
    if (all / step <= 300) compare("runs", o, expected, batch(whole, {first_page}), step);
  compare("top_k of half the keys", o, expected, batch(whole, {first_page}), all,
          o.sequences.longest() / 2);
  for (size_t b = 0; b < std::min<size_t>(3, whole.size()); ++b)
    compare("a sequence alone", o, expected, batch({whole[b]}, {first_page}),
            std::max(1, whole[b].to - whole[b].from));
  for (const int64_t page : pages) {
    compare("pages", o, expected, batch(whole, {page}), all);
    for (const int32_t most : {1, 7, 50}) {
      auto chunks = random_chunks(o.sequences, most, 3);
      if (chunks.size() > 90) chunks.resize(90);
      const IndexBatch some(o, chunks, {page});
      compare("chunks", o, expected, some, some.rows());
    }
    for (const size_t count : {size_t{1}, size_t{40}}) {
      auto steps = decode_steps(o.sequences, count, 2);
      compare("decodes", o, expected, batch(steps, {page}), static_cast<int64_t>(steps.size()));
      for (size_t i = 1; i < steps.size(); i += 5) steps[i].from = steps[i].to;
      const IndexBatch some(o, steps, {page});
      compare("decodes, some without a query", o, expected, some, some.rows());
    }
  }
}

// A NaN in a key affects only the scores of that key.
inline void check_nan_key() {
  const IndexCase c{.lengths = {70}, .seed = 40};
  current_case = "NaN in key 3, " + describe(c);
  const IndexOperands o(c);
  const std::vector<float> clean = score_whole(o);
  Bits keys = o.keys.get();
  keys[3 * c.dim + 100] = 0x7fff;
  o.keys.set(keys);
  std::vector<float> got = score_whole(o), nans, others = got;
  for (int64_t row = 3; row < 70; ++row) {
    nans.push_back(std::isnan(got[row * 73 + 3]) ? 1.0f : 0.0f);
    others[row * 73 + 3] = clean[row * 73 + 3];
  }
  expect_bits("NaN of key 3, by row", nans, std::vector<float>(nans.size(), 1.0f), 1);
  expect_bits("scores of other keys", others, clean, 73);
}

}  // namespace slimexx::kernels::testing
