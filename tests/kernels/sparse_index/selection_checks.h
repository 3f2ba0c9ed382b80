// Each query's best keys against a sort on the host: ties, NaN, few keys, clusters, padding.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/kernels/sparse_index/index_case.cuh"
#include "tests/kernels/sparse_index/score_checks.h"

namespace slimexx::kernels::testing {

// The expected selection: the k keys with the largest scores, in ascending order; ties go to the
// lower position, and NaN counts as -inf.
inline std::vector<int32_t> select_on_host(const float* scores, int64_t keys, int64_t k) {
  std::vector<int32_t> ids(static_cast<size_t>(keys));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  if (keys > k) {
    const auto value = [scores](int32_t i) {
      return std::isnan(scores[i]) ? -std::numeric_limits<float>::infinity() : scores[i];
    };
    std::nth_element(ids.begin(), ids.begin() + k, ids.end(), [&](int32_t a, int32_t b) {
      return value(a) != value(b) ? value(a) > value(b) : a < b;
    });
    std::sort(ids.begin(), ids.begin() + k);
  }
  ids.resize(static_cast<size_t>(k), -1);
  return ids;
}

// Scores [rows, columns] for rows of packed sequences, from row `first` on; rows after the last
// sequence are padding.
struct SelectionCase {
  std::vector<int32_t> cu;
  int64_t first, rows, columns, k;
  std::vector<float> scores;

  // Scores with few different values, so that many are equal, and some NaN.
  SelectionCase(std::vector<int32_t> starts, int64_t first_row, int64_t num_rows, int64_t best,
                float spread)
      : cu(std::move(starts)), first(first_row), rows(num_rows), columns(0), k(best) {
    for (size_t b = 0; b + 1 < cu.size(); ++b)
      columns = std::max<int64_t>(columns, cu[b + 1] - cu[b] + 5);
    scores = random_floats(rows * columns, spread);
    for (size_t i = 0; i < scores.size(); ++i)
      scores[i] = i % 97 == 13 ? NAN : std::round(scores[i]);
  }
  std::string name() const {
    return "selection of " + std::to_string(k) + " keys, " + std::to_string(rows) +
           " rows from row " + std::to_string(first) + ", " + std::to_string(cu.size() - 1) +
           " sequences, up to " + std::to_string(columns - 5) + " keys";
  }
  int64_t num_keys(int64_t row) const {
    for (size_t b = 0; b + 1 < cu.size(); ++b)
      if (first + row >= cu[b] && first + row < cu[b + 1]) return first + row - cu[b] + 1;
    return 0;
  }
  std::vector<int32_t> expected() const {
    std::vector<int32_t> all;
    for (int64_t row = 0; row < rows; ++row) {
      const auto own = select_on_host(scores.data() + row * columns, num_keys(row), k);
      all.insert(all.end(), own.begin(), own.end());
    }
    return all;
  }
};

inline void check_selection(const SelectionCase& c) {
  current_case = c.name();
  const FloatArray scores(c.scores);
  const Array<int32_t> cu(c.cu), selected(c.rows * c.k), again(c.rows * c.k);
  KeySelection problem{.scores = scores.data(), .selected = selected.data()};
  problem.rows = {.cu_seqlens = cu.data()};
  problem.rows.sequences = static_cast<int64_t>(c.cu.size()) - 1;
  problem.rows.first_row = c.first, problem.rows.rows = c.rows;
  problem.rows.max_query_len = c.rows, problem.rows.max_key_len = c.columns - 5;
  problem.score_stride = c.columns, problem.k = c.k;
  expect_status("select_keys", select_keys(problem, nullptr), cudaSuccess);
  problem.selected = again.data();
  problem.rows.max_key_len = c.columns;  // another bound, perhaps another schedule
  expect_status("select_keys", select_keys(problem, nullptr), cudaSuccess);
  SLX_CUDA(cudaDeviceSynchronize());
  const std::vector<int32_t> expected = c.expected();
  expect_bits("keys", selected.get(), expected, c.k);
  expect_bits("keys by another bound", again.get(), expected, c.k);
}

// Checks the selection against the device's own scores, with padding, packed or paged.
inline void check_choice(const IndexCase& c, int64_t page, int64_t k) {
  current_case =
      "choice of " + std::to_string(k) + ", page " + std::to_string(page) + ", " + describe(c);
  current_seed = c.seed;
  const IndexOperands o(c);
  const IndexBatch batch(o, o.sequences.whole(), {.page_tokens = page, .padding = 2});
  const std::vector<float> scores = score(batch, batch.rows(), k);
  const Array<int32_t> selected(batch.rows() * k);
  expect_status("select_keys",
                select_keys(batch.select(0, batch.rows(), k, selected.data()), nullptr),
                cudaSuccess);
  SLX_CUDA(cudaDeviceSynchronize());
  std::vector<int32_t> expected;
  int64_t row = 0;
  for (const Chunk& chunk : batch.chunks)
    for (int32_t p = chunk.from; p < chunk.to; ++p, ++row) {
      const auto own = select_on_host(scores.data() + row * batch.columns, p + 1, k);
      expected.insert(expected.end(), own.begin(), own.end());
    }
  expected.resize(static_cast<size_t>(batch.rows() * k), -1);
  expect_bits("keys", selected.get(), expected, k);
}

}  // namespace slimexx::kernels::testing
