// Key selection on the device: scores against the CPU's from the same bf16 inputs, with equal bits
// for any batch, runs of rows, pages and chunks; the selection against the CPU's from the device's
// own scores; a recorded decode step; and the norm of index keys.
#include "cpu_context.h"
#include "ops/cuda/sparse_index_cuda_problem.h"
#include "slimexx/ops/norm.h"
#include "slimexx/ops/sparse_attention.h"
#include "slimexx/tensor/graph.h"

namespace slimexx::ops::testing {
namespace {

class SparseIndexCuda : public DeviceTest {};

constexpr float kInf = std::numeric_limits<float>::infinity();
// Tolerance of f32 sums of up to 64 weighted heads, in another order than the CPU's.
constexpr double kScoreBound = 3e-4;

// Rows [first, end) of the packed scores, `step` at a time.
Array score_packed(const IndexProblem& p, int64_t first, int64_t end, int64_t step, int64_t top_k) {
  const OnDevice q(p.q), k(p.k), weights = as_is(p.weights), scores = as_is(p.blank(end - first));
  const PackedLayout packed(p.cu);
  run_op([&](const Context& s) {
    for (int64_t row = first; row < end; row += step) {
      const int64_t last = std::min(end, row + step);
      index_scores(s, scores.view().rows(row - first, last - first), q.view().rows(row, last),
                   weights.view().rows(row, last), k, packed.layout(), row, top_k, p.scale);
    }
  });
  return scores.back();
}
Array score_packed(const IndexProblem& p) {
  return score_packed(p, 0, p.num_tokens(), p.num_tokens(), 0);
}

Array score_on_cpu(const IndexProblem& p, int64_t first, int64_t end) {
  Array scores = p.blank(end - first);
  index_scores(cpu_context(), scores, p.q.view().rows(first, end),
               p.weights.view().rows(first, end), p.k, {p.cu, {}, {}, 0}, first, 0, p.scale);
  return scores;
}

// ---- scores ------------------------------------------------------------------------------------

TEST_F(SparseIndexCuda, ScoresAgreeWithTheCpu) {
  for (const IndexCase& c : index_cases()) {
    const IndexProblem p(c);
    EXPECT_TRUE(close(score_packed(p), doubles(score_on_cpu(p, 0, p.num_tokens())), kScoreBound,
                      kScoreBound))
        << name_of(c);
  }
}

TEST_F(SparseIndexCuda, ScoresOf40000KeysAgreeWithTheCpu) {
  const IndexProblem p({{40000}, 32, 16});
  for (const int64_t rows : {1, 33})
    EXPECT_TRUE(close(score_packed(p, 40000 - rows, 40000, rows, 2048),
                      doubles(score_on_cpu(p, 40000 - rows, 40000)), kScoreBound, kScoreBound))
        << rows << " rows";
}

TEST_F(SparseIndexCuda, SequenceAloneHasTheBitsOfTheBatch) {
  for (const IndexCase& c : index_cases()) {
    const IndexProblem p(c);
    const Array batch = score_packed(p);
    const OnDevice q(p.q), k(p.k), weights = as_is(p.weights);
    for (size_t b = 0; b < std::min<size_t>(c.lengths.size(), 4); ++b) {
      const PackedLayout one({0, c.lengths[b]});
      const OnDevice alone = as_is(p.blank(c.lengths[b]));
      const auto rows = [&](const tensor::Tensor& x) { return x.rows(p.cu[b], p.cu[b + 1]); };
      run_op([&](const Context& s) {
        index_scores(s, alone, rows(q), rows(weights), rows(k), one.layout(), 0, 0, p.scale);
      });
      EXPECT_TRUE(same_bits(alone.back(), rows(batch))) << "sequence " << b << " of " << name_of(c);
    }
  }
}

TEST_F(SparseIndexCuda, RunsOfRowsChangeNoBit) {
  for (const IndexCase& c : index_cases()) {
    const IndexProblem p(c);
    const Array whole = score_packed(p);
    for (const int64_t step : {1, 7, 100, 128}) {
      if (p.num_tokens() / step > 600) continue;
      EXPECT_TRUE(same_bits(score_packed(p, 0, p.num_tokens(), step, 0), whole))
          << step << " rows at a time, " << name_of(c);
    }
  }
}

// Expects row i of `part` to be the packed problem's row batch.rows[i].
void expect_rows(const PagedBatch& batch, const Array& part, const Array& packed,
                 const std::string& what) {
  for (int64_t i = 0; i < batch.num_rows(); ++i) {
    const int64_t row = batch.rows[static_cast<size_t>(i)];
    ASSERT_TRUE(same_bits(part.view().rows(i, i + 1), packed.view().rows(row, row + 1)))
        << "row " << row << ", " << what;
  }
}

TEST_F(SparseIndexCuda, PagesAndChunksChangeNoBit) {
  for (const IndexCase& c : index_cases()) {
    const IndexProblem p(c);
    const Array packed = score_packed(p);
    for (const int64_t page_tokens : {16, 64, 128}) {
      const IndexPages pages(p, page_tokens);
      for (const int32_t step : {1, 7, 50, 900}) {
        if (p.longest() / step > 70) continue;
        const OnDevice page_rows(pages.keys);
        for (int32_t first = 0; first < p.longest(); first += step) {
          std::vector<int32_t> begin, end;
          for (const int32_t length : c.lengths) {
            begin.push_back(std::min(first, length));
            end.push_back(std::min(first + step, length));
          }
          const PagedBatch batch(p, pages, begin, end);
          const DeviceLengths lengths(batch);
          const OnDevice q(batch.take(p.q, c.heads)), k(batch.take(p.k, 1)),
              weights = as_is(batch.take_weights()), slots = integers_on_device(batch.slots),
              scores = as_is(p.blank(batch.num_rows()));
          run_op([&](const Context& s) {
            write_kv_pages(s, page_rows, {}, k, {}, slots);
            index_scores(s, scores, q, weights, page_rows, lengths.layout(batch), 0, 0, p.scale);
          });
          expect_rows(batch, scores.back(), packed,
                      "pages of " + std::to_string(page_tokens) + ", chunks of " +
                          std::to_string(step) + ", " + name_of(c));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// A query with more than top_k keys keeps all scores; other queries may keep only some of theirs.
TEST_F(SparseIndexCuda, ScoresOfQueriesWithFewKeysMayBeLeftOut) {
  const IndexProblem p({{133, 40}, 32, 128});
  const Array all = score_packed(p), some = score_packed(p, 0, 173, 173, 90);
  EXPECT_TRUE(same_bits(some.view().rows(90, 133), all.view().rows(90, 133)));
  for (int64_t i = 0; i < all.size(); ++i)
    ASSERT_TRUE(some[i] == all[i] || some[i] == kUnwritten) << coordinates(all, i);
  EXPECT_EQ(some[0], kUnwritten);
}

TEST_F(SparseIndexCuda, NansReachTheScoresOfTheirKeysAlone) {
  IndexProblem p({{70}, 32, 128});
  const Array clean = score_packed(p);
  p.k[3 * 128 + 100] = kNan;
  const Array got = score_packed(p);
  for (int64_t row = 0; row < 70; ++row)
    for (int64_t j = 0; j <= row; ++j) {
      const int64_t i = row * p.columns() + j;
      if (j == 3) {
        ASSERT_TRUE(std::isnan(got[i])) << coordinates(got, i);
      } else {
        ASSERT_EQ(got[i], clean[i]) << coordinates(got, i);
      }
    }
}

TEST_F(SparseIndexCuda, OtherSizesAreRefused) {
  for (const IndexCase& c : {IndexCase{{4}, 65, 64}, {{4}, 4, 136}, {{4}, 4, 12}})
    expect_unserved(
        [&](const Context& s) {
          const IndexProblem p(c);
          const OnDevice q(p.q), k(p.k), weights = as_is(p.weights), scores = as_is(p.blank(4));
          index_scores(s, scores, q, weights, k, PackedLayout(p.cu).layout(), 0, 0, p.scale);
        },
        name_of(c));
}

// ---- selection ---------------------------------------------------------------------------------

Array select_on_device(const Array& scores, const std::vector<int32_t>& cu, int64_t first_row,
                       int64_t k) {
  const int64_t rows = scores.view().dim(0);
  Array blank({rows, k}, DType::kI32);
  std::fill_n(blank.view().i32(), blank.size(), -77);
  const OnDevice own_scores = as_is(scores), ids(blank);
  const PackedLayout packed(cu);
  run_op([&](const Context& s) { select_keys(s, ids, own_scores, packed.layout(), first_row); });
  return ids.back();
}
Array select_on_cpu(const Array& scores, const std::vector<int32_t>& cu, int64_t first_row,
                    int64_t k) {
  Array ids({scores.view().dim(0), k}, DType::kI32);
  select_keys(cpu_context(), ids, scores, {cu, {}, {}, 0}, first_row);
  return ids;
}

void expect_same_ids(const Array& got, const Array& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size());
  for (int64_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(got.view().i32()[i], expected.view().i32()[i])
        << "row " << i / got.view().dim(1) << ", place " << i % got.view().dim(1) << ", " << what;
}

// Returns the keys that the last query of one sequence selects by these scores.
std::vector<int32_t> select(const std::vector<float>& scores, int64_t k) {
  const auto n = static_cast<int32_t>(scores.size());
  const Array ids = select_on_device(Array::of(scores, {1, n}), {0, n}, n - 1, k);
  return {ids.view().i32(), ids.view().i32() + k};
}

TEST_F(SparseIndexCuda, TiesNansAndShortRowsAreSelectedByTheRules) {
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(select({0, 3, -1, 5, 4}, 3), (Ids{1, 3, 4}));
  EXPECT_EQ(select({1, 2, 1, 3, 1}, 3), (Ids{0, 1, 3}));
  EXPECT_EQ(select({0.0f, -0.0f, 0.0f, 1}, 2), (Ids{0, 3}));
  EXPECT_EQ(select({-0.0f, 0.0f, -0.0f, 1}, 3), (Ids{0, 1, 3}));
  EXPECT_EQ(select({kNan, -kInf, -5, kNan, -7}, 2), (Ids{2, 4}));
  EXPECT_EQ(select({kNan, -kInf, -5, kNan}, 2), (Ids{0, 2}));
  EXPECT_EQ(select({-kNan, -kInf, kNan}, 2), (Ids{0, 1}));
  EXPECT_EQ(select({-1, kNan, kInf}, 2), (Ids{0, 2}));
  EXPECT_EQ(select({kNan, -kInf, 1}, 5), (Ids{0, 1, 2, -1, -1}));
  EXPECT_EQ(select({kNan, -kInf, 1}, 3), (Ids{0, 1, 2}));
  EXPECT_EQ(select({7}, 2), (Ids{0, -1}));
}

// Scores with few values make many ties. All widths, and clusters of 1 to 8 blocks per row.
TEST_F(SparseIndexCuda, SelectionAgreesWithTheCpu) {
  struct Sizes {
    int32_t keys;
    int64_t rows;
  };
  for (const Sizes& c : {Sizes{1, 1},
                         {2, 2},
                         {33, 33},
                         {2049, 300},
                         {40000, 1},
                         {40000, 20},
                         {40000, 60},
                         {40000, 100}})
    for (const double scale : {1.0, 3000.0}) {
      Array scores = Array::random({c.rows, c.keys + 5}, kIndexSeed + c.rows, scale);
      for (int64_t i = 0; i < scores.size(); ++i)
        scores[i] = i % 97 == 13 ? kNan : std::round(scores[i]);
      for (const int64_t k : {1, 20, 2048, 5000}) {
        const std::vector<int32_t> cu{0, c.keys};
        expect_same_ids(select_on_device(scores, cu, c.keys - c.rows, k),
                        select_on_cpu(scores, cu, c.keys - c.rows, k),
                        std::to_string(c.rows) + " rows of " + std::to_string(c.keys) + " keys, " +
                            std::to_string(k) + " of them");
        if (HasFatalFailure()) return;
      }
    }
}

TEST_F(SparseIndexCuda, SelectionOfManySequencesAgreesWithTheCpu) {
  std::vector<int32_t> cu{0};
  for (int32_t i = 0; i < 80; ++i) cu.push_back(cu.back() + i % 5 * i);
  const int64_t tokens = cu.back();
  const Array scores = Array::random({tokens, 330}, kIndexSeed);
  for (const int64_t first : {int64_t{0}, tokens / 3}) {
    const int64_t end = std::min(tokens, first + 2000);
    const Array part = [&] {
      Array some({end - first, 330});
      std::copy_n(scores.view().f32() + first * 330, some.size(), some.view().f32());
      return some;
    }();
    expect_same_ids(select_on_device(part, cu, first, 20), select_on_cpu(part, cu, first, 20),
                    "from row " + std::to_string(first));
    if (HasFatalFailure()) return;
  }
}

TEST_F(SparseIndexCuda, SelectionByTheDevicesScoresAgreesWithTheCpu) {
  const IndexProblem p({{700, 90, 2500}, 32, 128});
  const Array scores = score_packed(p);
  for (const int64_t k : {64, 2048})
    expect_same_ids(select_on_device(scores, p.cu, 0, k), select_on_cpu(scores, p.cu, 0, k),
                    std::to_string(k) + " keys");
}

// ---- decodes -----------------------------------------------------------------------------------

// A recorded decode step: the lengths are on the device, the host knows upper bounds, and rows are
// padded.
TEST_F(SparseIndexCuda, RecordedDecodesHaveTheBitsOfTraining) {
  constexpr int64_t kPadded = 8, kTopK = 2048;
  const IndexProblem p({{40000, 2050, 2051, 33, 2}, 4, 128});
  const auto count = static_cast<int64_t>(p.shape.lengths.size());
  const IndexPages pages(p, 64);
  const std::vector<int32_t> none(p.shape.lengths.size(), 0);
  const PagedBatch all(p, pages, none, p.shape.lengths);
  const int64_t columns = pages.table.view().dim(1) * 64;
  Array table({kPadded, pages.table.view().dim(1)}, DType::kI32);
  std::fill_n(table.view().i32(), table.size(), 0);
  std::copy_n(pages.table.view().i32(), pages.table.size(), table.view().i32());
  Array ids_blank({kPadded, kTopK}, DType::kI32), score_blank({kPadded, columns});
  const OnDevice page_rows(pages.keys), keys(p.k), slots = integers_on_device(all.slots),
                                                   device_table(table);
  OnDevice q(Array({kPadded, p.shape.heads, p.shape.dim})),
      weights = as_is(Array({kPadded, p.shape.heads}));
  const OnDevice scores = as_is(score_blank), ids(ids_blank);
  OnDevice cu = integers_on_device(std::vector<int32_t>(kPadded + 1)),
           context = integers_on_device(std::vector<int32_t>(kPadded));
  const AttentionLayout layout{.cu_seqlens = {},
                               .context_lens = {},
                               .page_table = device_table,
                               .page_tokens = 64,
                               .device_cu_seqlens = cu,
                               .device_context_lens = context,
                               .max_query_len = 1,
                               .max_key_len = 65536};
  tensor::Arena arena(test_device(), 1 << 20, "test");
  const Context ctx = compute_context(arena);
  write_kv_pages(ctx, page_rows, {}, keys, {}, slots);
  const auto step = [&] {
    index_scores(ctx, scores, q, weights, page_rows, layout, 0, kTopK, p.scale);
    select_keys(ctx, ids, scores, layout, 0);
  };
  step();  // without sequences
  tensor::synchronize(ctx.stream);
  const Array padded = ids.back();
  for (int64_t i = 0; i < padded.size(); ++i) ASSERT_EQ(padded.view().i32()[i], -1) << i;
  const tensor::Graph graph(ctx.stream, step);
  for (const int32_t back : {2, 1}) {
    std::vector<int32_t> begin, end;
    for (const int32_t length : p.shape.lengths) {
      begin.push_back(length - back);
      end.push_back(length - back + 1);
    }
    const PagedBatch batch(p, pages, begin, end);
    Array some_q({kPadded, p.shape.heads, p.shape.dim}), some_weights({kPadded, p.shape.heads});
    const Array own_q = batch.take(p.q, p.shape.heads), own_weights = batch.take_weights();
    some_q.fill(kNan);
    some_weights.fill(kNan);
    std::copy_n(own_q.view().f32(), own_q.size(), some_q.view().f32());
    std::copy_n(own_weights.view().f32(), own_weights.size(), some_weights.view().f32());
    std::vector<int32_t> some_cu = batch.cu, some_context = batch.context;
    some_cu.resize(kPadded + 1, static_cast<int32_t>(count));
    some_context.resize(kPadded, 0);
    q.write(some_q);
    weights.write(some_weights);
    cu.write(Array::integers(some_cu));
    context.write(Array::integers(some_context));
    graph.launch(ctx.stream);
    tensor::synchronize(ctx.stream);
    const Array got = scores.back(), got_ids = ids.back();
    for (int64_t b = 0; b < count; ++b) {
      const int64_t row = batch.rows[static_cast<size_t>(b)],
                    num_keys = begin[static_cast<size_t>(b)] + 1;
      const Array packed = score_packed(p, row, row + 1, 1, kTopK);
      for (int64_t j = 0; j < num_keys && num_keys > kTopK; ++j)
        ASSERT_EQ(got[b * columns + j], packed[j]) << "sequence " << b << ", key " << j;
      const Array expected = select_on_cpu(packed, p.cu, row, kTopK);
      for (int64_t i = 0; i < kTopK; ++i)
        ASSERT_EQ(got_ids.view().i32()[b * kTopK + i], expected.view().i32()[i])
            << "sequence " << b << ", place " << i;
    }
    for (int64_t i = count * kTopK; i < got_ids.size(); ++i)
      ASSERT_EQ(got_ids.view().i32()[i], -1) << "padded row " << i / kTopK;
  }
}

// ---- the index keys' norm ----------------------------------------------------------------------

TEST_F(SparseIndexCuda, LayerNormAgreesWithTheCpuAndRowsStandAlone) {
  constexpr float kEps = 1e-6f;
  for (const int64_t size : {1, 16, 17, 128, 300, 5000}) {
    const Array x = random_bf16({70, size}, 1, 2.0, 5.0), w = random_bf16({size}, 2, 0.3, 1.0),
                b = random_bf16({size}, 3), expected({70, size});
    layer_norm_forward(cpu_context(), expected, x, w, b, kEps);
    const OnDevice own_x(x), own_w(w), own_b(b), y(Array({70, size}));
    run_op([&](const Context& s) { layer_norm_forward(s, y, own_x, own_w, own_b, kEps); });
    const Array got = y.back();
    EXPECT_TRUE(within_ulp(got, expected, 1e-5)) << size;
    for (int64_t t = 0; t < 70; t += 23) {
      const OnDevice alone(Array({1, size}));
      run_op([&](const Context& s) {
        layer_norm_forward(s, alone, own_x.view().rows(t, t + 1), own_w, own_b, kEps);
      });
      EXPECT_TRUE(same_bits(alone.back(), got.view().rows(t, t + 1)))
          << "row " << t << ", " << size;
    }
    run_op([&](const Context& s) { layer_norm_forward(s, own_x, own_x, own_w, own_b, kEps); });
    EXPECT_TRUE(same_bits(own_x.back(), got)) << "in place, " << size;
  }
}

}  // namespace
}  // namespace slimexx::ops::testing
