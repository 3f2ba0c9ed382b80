// Compares key selection, and attention over selected keys, with their definitions in double.
#include "slimexx/ops/sparse_attention.h"

#include <limits>

#include "cpu_context.h"
#include "ops/attention/attention_problem.h"
#include "slimexx/ops/norm.h"

namespace slimexx::ops::testing {
namespace {

SLX_OPS_SUITE(SparseAttention);

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

using Ids = std::vector<int32_t>;

Ids values(const Array& ids) {
  return {ids.view().i32(), ids.view().i32() + ids.view().num_elements()};
}

// ---- select_keys -------------------------------------------------------------------------------

// Returns the keys that the last query of one sequence selects by these scores.
Ids select(const Context& ctx, const std::vector<float>& scores, int64_t k) {
  const auto n = static_cast<int32_t>(scores.size());
  const std::vector<int32_t> cu{0, n};
  Array ids({1, k}, DType::kI32);
  select_keys(ctx, ids, Array::of(scores, {1, n}), {cu, {}, {}, 0}, n - 1);
  return values(ids);
}

TEST_P(SparseAttention, TheBestKeysAreSelectedInAscendingOrder) {
  EXPECT_EQ(select(ctx_, {0, 3, -1, 5, 4}, 3), (Ids{1, 3, 4}));
  EXPECT_EQ(select(ctx_, {5, 4, 3, 2, 1}, 2), (Ids{0, 1}));
  EXPECT_EQ(select(ctx_, {1, 2, 3, 4, 5}, 1), (Ids{4}));
}

TEST_P(SparseAttention, TiesGoToTheLowerPosition) {
  EXPECT_EQ(select(ctx_, {0, 0, 0, 0}, 2), (Ids{0, 1}));
  EXPECT_EQ(select(ctx_, {1, 2, 1, 3, 1}, 3), (Ids{0, 1, 3}));
  EXPECT_EQ(select(ctx_, {0.0f, -0.0f, 0.0f, 1}, 2), (Ids{0, 3}));
  EXPECT_EQ(select(ctx_, {7, 2, 7, 7, 7}, 3), (Ids{0, 2, 3}));
}

TEST_P(SparseAttention, NanCountsAsTheLeastOfAll) {
  EXPECT_EQ(select(ctx_, {kNan, -kInf, -5, kNan, -7}, 2), (Ids{2, 4}));
  EXPECT_EQ(select(ctx_, {kNan, -kInf, -5, kNan}, 2), (Ids{0, 2}));
  EXPECT_EQ(select(ctx_, {-kInf, kNan, kNan, kNan}, 2), (Ids{0, 1}));
  EXPECT_EQ(select(ctx_, {kNan, kNan, kNan}, 2), (Ids{0, 1}));
  EXPECT_EQ(select(ctx_, {-1, kNan, kInf}, 2), (Ids{0, 2}));
}

TEST_P(SparseAttention, FewerKeysThanWantedAreAllSelectedWhateverTheirScores) {
  EXPECT_EQ(select(ctx_, {kNan, -kInf, 1}, 5), (Ids{0, 1, 2, -1, -1}));
  EXPECT_EQ(select(ctx_, {kNan, -kInf, 1}, 3), (Ids{0, 1, 2}));
}

// Compares with a full sort, in one call and in several. Scores with few values make many ties.
TEST_P(SparseAttention, SelectionAgreesWithSorting) {
  const std::vector<int32_t> cu{0, 90, 90, 97, 250};
  const AttentionLayout layout{cu, {}, {}, 0};
  for (const double scale : {1.0, 1000.0}) {
    Array scores = Array::random({250, 160}, 5, scale);
    for (int64_t i = 0; i < scores.size(); ++i) scores[i] = std::round(scores[i]);
    for (const int64_t k : {1, 20, 64, 153}) {
      Array ids({250, k}, DType::kI32);
      for (const int64_t step : {250, 64, 1}) {
        for (int64_t first = 0; first < 250; first += step) {
          const int64_t end = std::min<int64_t>(250, first + step);
          select_keys(ctx_, ids.view().rows(first, end), scores.view().rows(first, end), layout,
                      first);
        }
        for (size_t b = 0; b + 1 < cu.size(); ++b)
          for (int64_t row = cu[b]; row < cu[b + 1]; ++row) {
            std::vector<std::pair<float, int32_t>> keys;
            for (int32_t j = 0; j <= row - cu[b]; ++j) keys.emplace_back(-scores[row * 160 + j], j);
            std::ranges::sort(keys);
            Ids expected(static_cast<size_t>(k), -1);
            const size_t count = std::min(keys.size(), expected.size());
            for (size_t i = 0; i < count; ++i) expected[i] = keys[i].second;
            std::sort(expected.begin(), expected.begin() + static_cast<int64_t>(count));
            const int32_t* got = ids.view().i32() + row * k;
            ASSERT_EQ(Ids(got, got + k), expected) << "row " << row << ", k " << k;
          }
      }
    }
  }
}

// ---- index_scores ------------------------------------------------------------------------------

struct IndexProblem {
  Problem keys;  // its q and k, with one key head
  Array weights;

  explicit IndexProblem(std::vector<int32_t> lengths, int64_t heads, int64_t dim)
      : keys({std::move(lengths), heads, 1, dim}),
        weights(Array::random({keys.num_tokens(), heads}, 41)) {}
  int64_t num_tokens() const { return keys.num_tokens(); }

  // Rows [first, end) of the packed scores; 77 in entries that the op does not write.
  Array scores(const Context& ctx, int64_t first, int64_t end, int64_t top_k) const {
    Array out({end - first, 140});
    out.fill(77);
    index_scores(ctx, out, keys.q.view().rows(first, end), weights.view().rows(first, end), keys.k,
                 keys.packed(), first, top_k, keys.scale);
    return out;
  }
};

TEST_P(SparseAttention, ScoresAgreeWithDoubles) {
  for (const auto& [heads, dim] : {std::pair<int64_t, int64_t>{1, 8}, {3, 33}, {40, 16}}) {
    const IndexProblem p({1, 0, 70, 133}, heads, dim);
    const Array got = p.scores(ctx_, 0, p.num_tokens(), 0);
    for (size_t b = 0; b + 1 < p.keys.cu.size(); ++b)
      for (int64_t i = p.keys.cu[b]; i < p.keys.cu[b + 1]; ++i)
        for (int64_t j = 0; j < 140; ++j) {
          double sum = 0;
          for (int64_t h = 0; h < heads; ++h) {
            double s = 0;
            for (int64_t c = 0; c < dim; ++c)
              s += double{p.keys.q[(i * heads + h) * dim + c]} *
                   p.keys.k[(p.keys.cu[b] + std::min(j, i - p.keys.cu[b])) * dim + c];
            sum += double{p.weights[i * heads + h]} * std::max(0.0, s * p.keys.scale);
          }
          if (j > i - p.keys.cu[b]) sum = 77;  // later keys have no score
          EXPECT_NEAR(got[i * 140 + j], sum, 1e-5) << "row " << i << ", key " << j;
        }
  }
}

TEST_P(SparseAttention, RunsOfRowsPagesAndThreadsChangeNoBitOfScores) {
  const IndexProblem p({70, 133}, 5, 24);
  const Array whole = p.scores(ctx_, 0, 203, 0);
  for (const int64_t step : {1, 7, 100})
    for (int64_t first = 0; first < 203; first += step) {
      const int64_t end = std::min<int64_t>(203, first + step);
      ASSERT_TRUE(same_bits(p.scores(ctx_, first, end, 0), whole.view().rows(first, end)));
    }
  for (const int64_t page_tokens : {1, 16}) {
    Pages pages(p.keys, page_tokens);
    const Chunk all(p.keys, pages, {0, 0}, {70, 133}), late(p.keys, pages, {50, 130}, {70, 133});
    write_kv_pages(ctx_, pages.k, {}, p.keys.k, {}, Array::integers(all.slots));
    const AttentionLayout layout{late.cu, late.context, pages.table, page_tokens};
    Array q({23, 5, 24}), weights({23, 5}), out({23, 140});
    out.fill(77);
    for (int64_t i = 0; i < 23; ++i) {
      const int64_t row = late.rows[static_cast<size_t>(i)];
      std::copy_n(p.keys.q.view().f32() + row * 120, 120, q.view().f32() + i * 120);
      std::copy_n(p.weights.view().f32() + row * 5, 5, weights.view().f32() + i * 5);
    }
    index_scores(ctx_, out, q, weights, pages.k, layout, 0, 0, p.keys.scale);
    for (int64_t i = 0; i < 23; ++i) {
      const int64_t row = late.rows[static_cast<size_t>(i)];
      ASSERT_TRUE(same_bits(out.view().rows(i, i + 1), whole.view().rows(row, row + 1)));
    }
  }
  expect_same_for_any_threads([&] { return std::vector<Array>{p.scores(ctx_, 0, 203, 0)}; });
}

// Queries that see all their keys need no scores; all other queries get theirs.
TEST_P(SparseAttention, ScoresOfQueriesWithFewKeysMayBeLeftOut) {
  const IndexProblem p({133}, 4, 16);
  const Array all = p.scores(ctx_, 0, 133, 0), some = p.scores(ctx_, 0, 133, 90);
  EXPECT_TRUE(same_bits(some.view().rows(90, 133), all.view().rows(90, 133)));
  EXPECT_EQ(some[0], 77);
}

// ---- attention over selected keys --------------------------------------------------------------

// k random keys for each query, or all its keys if there are at most k.
Array random_selection(const Problem& p, int64_t k) {
  Array ids({p.num_tokens(), k}, DType::kI32);
  PhiloxStream random(8, 2);
  for (size_t b = 0; b + 1 < p.cu.size(); ++b)
    for (int64_t row = p.cu[b]; row < p.cu[b + 1]; ++row) {
      Ids keys(static_cast<size_t>(row - p.cu[b] + 1));
      std::iota(keys.begin(), keys.end(), 0);
      while (std::ssize(keys) > k)
        keys.erase(keys.begin() + static_cast<int64_t>(random.next_below(keys.size())));
      int32_t* own = ids.view().i32() + row * k;
      std::fill(std::ranges::copy(keys, own).out, own + k, -1);
    }
  return ids;
}

AttentionLayout with(AttentionLayout layout, const Array& ids) {
  layout.selected = ids;
  return layout;
}

bool sees(const Array& ids, int64_t row, int64_t key) {
  const int32_t* own = ids.view().i32() + row * ids.view().dim(1);
  return std::find(own, own + ids.view().dim(1), key) != own + ids.view().dim(1);
}

struct Gradients {
  std::vector<double> out, dq, dk, dv;
};

// Reference forward and backward by their formulas, over the keys that queries see.
Gradients reference(const Problem& p, const Array& ids, const Array& dout) {
  const int64_t hq = p.shape.query_heads, hkv = p.shape.kv_heads, d = p.shape.dim;
  Gradients r{doubles(p.q), doubles(p.q), doubles(p.k), doubles(p.k)};
  for (auto* x : {&r.out, &r.dq, &r.dk, &r.dv}) std::ranges::fill(*x, 0.0);
  for (size_t b = 0; b + 1 < p.cu.size(); ++b)
    for (int64_t i = p.cu[b]; i < p.cu[b + 1]; ++i)
      for (int64_t h = 0; h < hq; ++h) {
        const int64_t iq = (i * hq + h) * d;
        std::vector<std::pair<int64_t, double>> seen;  // offset of the key, weight
        double sum = 0, delta = 0;
        for (int64_t j = p.cu[b]; j <= i; ++j) {
          if (!sees(ids, i, j - p.cu[b])) continue;
          const int64_t jk = (j * hkv + h / (hq / hkv)) * d;
          double s = 0;
          for (int64_t x = 0; x < d; ++x) s += double{p.q[iq + x]} * p.k[jk + x];
          seen.emplace_back(jk, std::exp(s * p.scale));
          sum += seen.back().second;
        }
        for (auto& [jk, w] : seen) {
          w /= sum;
          for (int64_t x = 0; x < d; ++x)
            r.out[static_cast<size_t>(iq + x)] += w * double{p.v[jk + x]};
        }
        for (int64_t x = 0; x < d; ++x)
          delta += double{dout[iq + x]} * r.out[static_cast<size_t>(iq + x)];
        for (const auto& [jk, w] : seen) {
          double dp = 0;
          for (int64_t x = 0; x < d; ++x) dp += double{dout[iq + x]} * p.v[jk + x];
          const double ds = w * (dp - delta) * p.scale;
          for (int64_t x = 0; x < d; ++x) {
            r.dq[static_cast<size_t>(iq + x)] += ds * p.k[jk + x];
            r.dk[static_cast<size_t>(jk + x)] += ds * p.q[iq + x];
            r.dv[static_cast<size_t>(jk + x)] += w * dout[iq + x];
          }
        }
      }
  return r;
}

struct Passes {
  Array out, lse, dq, dk, dv;
};
Passes run(const Context& ctx, const Problem& p, const AttentionLayout& layout, const Array& dout) {
  Passes r{p.output(), p.row_statistics(), p.output(), p.k.clone(), p.k.clone()};
  for (Array* x : {&r.dq, &r.dk, &r.dv}) x->fill(kNan);
  attention_forward(ctx, r.out, r.lse, p.q, p.k, p.v, layout, p.scale);
  attention_backward(ctx, r.dq, r.dk, r.dv, dout, p.q, p.k, p.v, r.out, r.lse, layout, p.scale);
  return r;
}

TEST_P(SparseAttention, ForwardAndBackwardAgreeWithDoubles) {
  for (const auto& c : {cases::AttentionCase{{5, 0, 3}, 4, 2, 16},
                        {{130, 7}, 6, 2, 33},
                        {{97}, 4, 4, 40},
                        {{200}, 8, 1, 24}}) {
    const Problem p(c);
    const Array dout = Array::random({p.num_tokens(), c.query_heads, c.dim}, 31);
    for (const int64_t k : {1, 20, 100}) {
      const Array ids = random_selection(p, k);
      const Passes got = run(ctx_, p, with(p.packed(), ids), dout);
      const Gradients expected = reference(p, ids, dout);
      EXPECT_TRUE(close(got.out, expected.out, 1e-5, 2e-6)) << "k " << k << ", dim " << c.dim;
      EXPECT_TRUE(close(got.dq, expected.dq, 2e-5, 1e-5)) << "k " << k << ", dim " << c.dim;
      EXPECT_TRUE(close(got.dk, expected.dk, 2e-5, 4e-5)) << "k " << k << ", dim " << c.dim;
      EXPECT_TRUE(close(got.dv, expected.dv, 2e-5, 4e-5)) << "k " << k << ", dim " << c.dim;
    }
  }
}

// A selection of all keys has the bits of dense attention, forward and backward.
TEST_P(SparseAttention, AllKeysSelectedAreDenseAttention) {
  for (const auto& c : cases::attention_values()) {
    const Problem p(c);
    const Array dout = Array::random({p.num_tokens(), c.query_heads, c.dim}, 31);
    const int64_t longest = *std::max_element(c.lengths.begin(), c.lengths.end());
    const Passes dense = run(ctx_, p, p.packed(), dout);
    for (const int64_t k : {longest, longest + 9}) {
      const Array ids = random_selection(p, k);
      const Passes sparse = run(ctx_, p, with(p.packed(), ids), dout);
      EXPECT_TRUE(same_bits(sparse.out, dense.out)) << "dim " << c.dim;
      EXPECT_TRUE(same_bits(sparse.lse, dense.lse)) << "dim " << c.dim;
      EXPECT_TRUE(same_bits(sparse.dq, dense.dq)) << "dim " << c.dim;
      EXPECT_TRUE(same_bits(sparse.dk, dense.dk)) << "dim " << c.dim;
      EXPECT_TRUE(same_bits(sparse.dv, dense.dv)) << "dim " << c.dim;
    }
  }
}

TEST_P(SparseAttention, KeysThatAreNotSelectedNeverReachAQuery) {
  const Problem p({{100}, 4, 2, 16});
  Array ids({100, 3}, DType::kI32);
  for (int32_t row = 0; row < 100; ++row)  // only keys 0, 1 and 7
    for (int32_t i = 0; i < 3; ++i)
      ids.view().i32()[row * 3 + i] = row < 3 ? (i <= row ? i : -1) : std::array{0, 1, 2}[i];
  const Array dout = Array::random({100, 4, 16}, 31);
  const Passes clean = run(ctx_, p, with(p.packed(), ids), dout);
  Problem spoiled({{100}, 4, 2, 16});
  for (int64_t i = 3 * 2 * 16; i < spoiled.k.size(); ++i) spoiled.k[i] = spoiled.v[i] = kNan;
  const Passes got = run(ctx_, spoiled, with(p.packed(), ids), dout);
  EXPECT_TRUE(same_bits(got.out, clean.out));
  EXPECT_TRUE(same_bits(got.dq, clean.dq));
  EXPECT_TRUE(same_bits(got.dk, clean.dk));
  for (int64_t i = 3 * 2 * 16; i < got.dk.size(); ++i) EXPECT_EQ(got.dk[i], 0.0f);
}

TEST_P(SparseAttention, PagesAndBatchesAndThreadsChangeNoBit) {
  const Problem p({{70, 133}, 6, 1, 24});
  for (const int64_t k : {20, 67}) {
    const Array ids = random_selection(p, k), dout = Array::random({203, 6, 24}, 31);
    const Passes whole = run(ctx_, p, with(p.packed(), ids), dout);
    for (const int64_t page_tokens : {1, 16, 100}) {
      Pages pages(p, page_tokens);
      const Chunk all(p, pages, {0, 0}, {70, 133}), late(p, pages, {69, 60}, {70, 133});
      write_kv_pages(ctx_, pages.k, pages.v, p.k, p.v, Array::integers(all.slots));
      Array q({74, 6, 24}), out({74, 6, 24}), own({74, k}, DType::kI32);
      for (int64_t i = 0; i < 74; ++i) {
        const int64_t row = late.rows[static_cast<size_t>(i)];
        std::copy_n(p.q.view().f32() + row * 144, 144, q.view().f32() + i * 144);
        std::copy_n(ids.view().i32() + row * k, k, own.view().i32() + i * k);
      }
      attention_forward(ctx_, out, {}, q, pages.k, pages.v,
                        with({late.cu, late.context, pages.table, page_tokens}, own), p.scale);
      for (int64_t i = 0; i < 74; ++i) {
        const int64_t row = late.rows[static_cast<size_t>(i)];
        ASSERT_TRUE(same_bits(out.view().rows(i, i + 1), whole.out.view().rows(row, row + 1)));
      }
    }
    expect_same_for_any_threads([&] {
      const Passes r = run(ctx_, p, with(p.packed(), ids), dout);
      return std::vector<Array>{r.out, r.dq, r.dk, r.dv};
    });
  }
}

TEST(SparseAttentionDeathTest, IdsThatDoNotAscendOrAreLaterThanTheQueryAreCaught) {
  const Problem p({{4}, 1, 1, 8});
  const auto attend = [&](const Ids& last) {
    Array ids({4, 2}, DType::kI32), out = p.output();
    std::ranges::copy(Ids{0, -1, 0, 1, 0, 1}, ids.view().i32());
    std::ranges::copy(last, ids.view().i32() + 6);
    attention_forward(cpu_context(), out, {}, p.q, p.k, p.v, with(p.packed(), ids), p.scale);
  };
  attend({1, 3});
  EXPECT_DEATH(attend({1, 4}), "key 4 is selected");
  EXPECT_DEATH(attend({2, 2}), "key 2 is selected");
  EXPECT_DEATH(attend({-1, 2}), "key -1 is selected");
}

// ---- the index keys' norm ----------------------------------------------------------------------

TEST_P(SparseAttention, LayerNormAgreesWithDoublesAndRowsStandAlone) {
  constexpr double kEps = 1e-6;
  for (const int64_t size : {1, 16, 128, 300}) {
    const Array wide = Array::random({7, size + 40}, 1, 2.0, 5.0);
    const tensor::Tensor x = wide.view().columns(20, size + 20);
    const Array w = Array::random({size}, 2, 0.3, 1.0), b = Array::random({size}, 3);
    Array y({7, size});
    layer_norm_forward(ctx_, y, x, w, b, static_cast<float>(kEps));
    const std::vector<double> in = doubles(x);
    std::vector<double> expected(in.size());
    const auto n = static_cast<size_t>(size);
    for (size_t row = 0; row < in.size(); row += n) {
      double mean = 0, squares = 0;
      for (size_t i = 0; i < n; ++i) mean += in[row + i] / static_cast<double>(n);
      for (size_t i = 0; i < n; ++i) squares += (in[row + i] - mean) * (in[row + i] - mean);
      const double r = 1 / std::sqrt(squares / static_cast<double>(n) + kEps);
      for (size_t i = 0; i < n; ++i)
        expected[row + i] = double{w[static_cast<int64_t>(i)]} * (in[row + i] - mean) * r +
                            double{b[static_cast<int64_t>(i)]};
    }
    EXPECT_TRUE(close(y, expected, 2e-6, 2e-6)) << size;
    for (int64_t t = 0; t < 7; ++t) {
      Array alone =
          Array::of({x.f32() + t * x.stride(0), x.f32() + t * x.stride(0) + size}, {1, size});
      layer_norm_forward(ctx_, alone, alone, w, b, static_cast<float>(kEps));
      EXPECT_TRUE(same_bits(alone, y.view().rows(t, t + 1))) << "in place, row " << t;
    }
  }
}

}  // namespace
}  // namespace slimexx::ops::testing
