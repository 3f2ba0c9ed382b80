#include "cpu_context.h"
#include "ops/attention/attention_problem.h"

namespace slimexx::ops::testing {
namespace {

SLX_OPS_SUITE(Attention);

struct Reference {
  std::vector<double> out, lse;
};

Reference reference_forward(const Problem& p, const std::vector<double>& q,
                            const std::vector<double>& k, const std::vector<double>& v) {
  const int64_t hq = p.shape.query_heads, hkv = p.shape.kv_heads, d = p.shape.dim;
  Reference r{std::vector<double>(q.size()),
              std::vector<double>(static_cast<size_t>(p.num_tokens() * hq))};
  for (size_t b = 0; b + 1 < p.cu.size(); ++b)
    for (int64_t i = p.cu[b]; i < p.cu[b + 1]; ++i)
      for (int64_t h = 0; h < hq; ++h) {
        const int64_t kv_head = h / (hq / hkv);
        std::vector<double> weight;
        double sum = 0.0;
        for (int64_t j = p.cu[b]; j <= i; ++j) {
          double s = 0.0;
          for (int64_t c = 0; c < d; ++c)
            s += q[static_cast<size_t>((i * hq + h) * d + c)] *
                 k[static_cast<size_t>((j * hkv + kv_head) * d + c)];
          weight.push_back(std::exp(s * static_cast<double>(p.scale)));
          sum += weight.back();
        }
        r.lse[static_cast<size_t>(i * hq + h)] = std::log(sum);
        for (int64_t j = p.cu[b]; j <= i; ++j)
          for (int64_t c = 0; c < d; ++c)
            r.out[static_cast<size_t>((i * hq + h) * d + c)] +=
                weight[static_cast<size_t>(j - p.cu[b])] / sum *
                v[static_cast<size_t>((j * hkv + kv_head) * d + c)];
      }
  return r;
}

// Runs the whole problem through pages, `step` tokens of every sequence at a time.
Array run_in_chunks(const Context& ctx, const Problem& p, int64_t page_tokens, int32_t step) {
  Pages pages(p, page_tokens);
  Array out = p.output();
  const int64_t q_row = p.shape.query_heads * p.shape.dim, kv_row = p.shape.kv_heads * p.shape.dim;
  const int32_t longest = *std::max_element(p.shape.lengths.begin(), p.shape.lengths.end());
  for (int32_t first = 0; first < longest; first += step) {
    std::vector<int32_t> begin, end;
    for (int32_t length : p.shape.lengths) {
      begin.push_back(std::min(first, length));
      end.push_back(std::min(first + step, length));
    }
    const Chunk chunk(p, pages, begin, end);
    const auto n = static_cast<int64_t>(chunk.rows.size());
    Array q({n, p.shape.query_heads, p.shape.dim}), k({n, p.shape.kv_heads, p.shape.dim}),
        v({n, p.shape.kv_heads, p.shape.dim}), part({n, p.shape.query_heads, p.shape.dim});
    for (int64_t i = 0; i < n; ++i) {
      const int64_t row = chunk.rows[static_cast<size_t>(i)];
      std::copy_n(p.q.view().f32() + row * q_row, q_row, q.view().f32() + i * q_row);
      std::copy_n(p.k.view().f32() + row * kv_row, kv_row, k.view().f32() + i * kv_row);
      std::copy_n(p.v.view().f32() + row * kv_row, kv_row, v.view().f32() + i * kv_row);
    }
    write_kv_pages(ctx, pages.k, pages.v, k, v, Array::integers(chunk.slots));
    const AttentionLayout layout{chunk.cu, chunk.context, pages.table, page_tokens};
    attention_forward(ctx, part, {}, q, pages.k, pages.v, layout, p.scale);
    for (int64_t i = 0; i < n; ++i)
      std::copy_n(part.view().f32() + i * q_row, q_row,
                  out.view().f32() + chunk.rows[static_cast<size_t>(i)] * q_row);
  }
  return out;
}

TEST_P(Attention, ForwardAgreesWithDoubles) {
  for (const auto& c : cases::attention_values()) {
    const Problem p(c);
    Array out = p.output(), lse = p.row_statistics();
    attention_forward(ctx_, out, lse, p.q, p.k, p.v, p.packed(), p.scale);
    const Reference expected = reference_forward(p, doubles(p.q), doubles(p.k), doubles(p.v));
    EXPECT_TRUE(close(out, expected.out, 1e-5, 2e-6)) << "dim " << c.dim;
    EXPECT_TRUE(close(lse, expected.lse, 1e-6, 2e-6)) << "dim " << c.dim;
  }
}

// Large scores overflow unless the running maximum is subtracted.
TEST_P(Attention, LargeScoresDoNotOverflow) {
  Problem p({{150}, 2, 1, 16});
  for (int64_t i = 0; i < p.q.size(); ++i) p.q[i] *= 40.0f;
  Array out = p.output(), lse = p.row_statistics();
  attention_forward(ctx_, out, lse, p.q, p.k, p.v, p.packed(), p.scale);
  const Reference expected = reference_forward(p, doubles(p.q), doubles(p.k), doubles(p.v));
  EXPECT_TRUE(close(out, expected.out, 1e-4, 1e-4));
  EXPECT_TRUE(close(lse, expected.lse, 1e-5, 1e-5));
}

TEST_P(Attention, SequenceAloneHasTheBitsOfTheBatch) {
  for (const auto& c : cases::attention_values()) {
    const Problem p(c);
    Array out = p.output();
    attention_forward(ctx_, out, {}, p.q, p.k, p.v, p.packed(), p.scale);
    for (size_t b = 0; b < c.lengths.size(); ++b) {
      const std::vector<int32_t> cu{0, c.lengths[b]};
      Array alone({c.lengths[b], c.query_heads, c.dim});
      const auto rows = [&](const Array& x) { return x.view().rows(p.cu[b], p.cu[b + 1]); };
      attention_forward(ctx_, alone, {}, rows(p.q), rows(p.k), rows(p.v), {cu, {}, {}, 0}, p.scale);
      EXPECT_TRUE(same_bits(alone, rows(out))) << "sequence " << b << ", dim " << c.dim;
    }
  }
}

TEST_P(Attention, PagesAndChunksChangeNothing) {
  for (const auto& c : cases::attention_values()) {
    const Problem p(c);
    Array out = p.output();
    attention_forward(ctx_, out, {}, p.q, p.k, p.v, p.packed(), p.scale);
    for (int64_t page_tokens : {1, 16, 64, 100})
      for (int32_t step : {1, 7, 64, 1000}) {
        if (step == 1 && page_tokens != 16) continue;
        ASSERT_TRUE(same_bits(run_in_chunks(ctx_, p, page_tokens, step), out))
            << "page " << page_tokens << ", chunks of " << step << ", dim " << c.dim;
      }
  }
}

TEST_P(Attention, LaterKeysNeverReachAQuery) {
  const Problem p({{100}, 4, 2, 16});
  Array out = p.output(), again = p.output();
  attention_forward(ctx_, out, {}, p.q, p.k, p.v, p.packed(), p.scale);
  Problem spoiled({{100}, 4, 2, 16});
  const int64_t from = 70;
  for (int64_t i = from * 2 * 16; i < p.k.size(); ++i) {
    spoiled.k[i] = std::nanf("");
    spoiled.v[i] = std::nanf("");
  }
  attention_forward(ctx_, again, {}, p.q, spoiled.k, spoiled.v, p.packed(), p.scale);
  EXPECT_TRUE(same_bits(again.view().rows(0, from), out.view().rows(0, from)));
  EXPECT_TRUE(std::isnan(again[from * 4 * 16]));
}

TEST_P(Attention, StridedViewsOfOneProjection) {
  const Problem p({{33, 70}, 4, 2, 24});
  Array out = p.output();
  attention_forward(ctx_, out, {}, p.q, p.k, p.v, p.packed(), p.scale);
  Array fused({p.num_tokens(), 8 * 24}), wide_out({p.num_tokens(), 200});
  const auto part = [&](int64_t begin, int64_t heads) {
    return fused.view().columns(begin * 24, (begin + heads) * 24).split_columns(heads);
  };
  const tensor::Tensor q = part(0, 4), k = part(4, 2), v = part(6, 2);
  for (int64_t t = 0; t < p.num_tokens(); ++t) {
    std::copy_n(p.q.view().f32() + t * 96, 96, q.f32() + t * q.stride(0));
    std::copy_n(p.k.view().f32() + t * 48, 48, k.f32() + t * k.stride(0));
    std::copy_n(p.v.view().f32() + t * 48, 48, v.f32() + t * v.stride(0));
  }
  const tensor::Tensor strided = wide_out.view().columns(50, 146).split_columns(4);
  attention_forward(ctx_, strided, {}, q, k, v, p.packed(), p.scale);
  EXPECT_TRUE(same_bits(strided, out));
}

std::vector<Array> run_backward(const Context& ctx, const Problem& p, const Array& dout) {
  Array out = p.output(), lse = p.row_statistics(), dq = p.output();
  Array dk({p.num_tokens(), p.shape.kv_heads, p.shape.dim}),
      dv({p.num_tokens(), p.shape.kv_heads, p.shape.dim});
  for (Array* x : {&dq, &dk, &dv}) x->fill(std::nanf(""));
  attention_forward(ctx, out, lse, p.q, p.k, p.v, p.packed(), p.scale);
  attention_backward(ctx, dq, dk, dv, dout, p.q, p.k, p.v, out, lse, p.packed(), p.scale);
  return {dq, dk, dv, out};
}

TEST_P(Attention, GradientsAgreeWithDifferences) {
  for (const auto& c : cases::attention_gradients()) {
    const Problem p(c);
    const Array dout = Array::random({p.num_tokens(), c.query_heads, c.dim}, 31);
    const auto got = run_backward(ctx_, p, dout);
    const auto q = doubles(p.q), k = doubles(p.k), v = doubles(p.v), weights = doubles(dout);
    const auto f = [&](const auto& q_, const auto& k_, const auto& v_) {
      return reference_forward(p, q_, k_, v_).out;
    };
    EXPECT_TRUE(close(got[0],
                      numeric_gradient(q, weights, [&](const auto& x) { return f(x, k, v); }), 1e-4,
                      1e-5));
    EXPECT_TRUE(close(got[1],
                      numeric_gradient(k, weights, [&](const auto& x) { return f(q, x, v); }), 1e-4,
                      1e-5));
    EXPECT_TRUE(close(got[2],
                      numeric_gradient(v, weights, [&](const auto& x) { return f(q, k, x); }), 1e-4,
                      1e-5));
  }
}

// Compares sizes at every tile edge with the backward formulas in double.
TEST_P(Attention, BackwardAgreesWithDoubles) {
  for (const auto& c : cases::attention_values()) {
    const Problem p(c);
    const int64_t hq = c.query_heads, hkv = c.kv_heads, d = c.dim;
    const Array dout = Array::random({p.num_tokens(), hq, d}, 31);
    const auto got = run_backward(ctx_, p, dout);
    const Reference r = reference_forward(p, doubles(p.q), doubles(p.k), doubles(p.v));
    std::vector<double> dq(static_cast<size_t>(p.q.size())), dk(static_cast<size_t>(p.k.size())),
        dv = dk;
    for (size_t b = 0; b + 1 < p.cu.size(); ++b)
      for (int64_t i = p.cu[b]; i < p.cu[b + 1]; ++i)
        for (int64_t h = 0; h < hq; ++h) {
          const int64_t iq = (i * hq + h) * d;
          double delta = 0.0;
          for (int64_t x = 0; x < d; ++x)
            delta += dout[iq + x] * r.out[static_cast<size_t>(iq + x)];
          for (int64_t j = p.cu[b]; j <= i; ++j) {
            const int64_t jk = (j * hkv + h / (hq / hkv)) * d;
            double s = 0.0, dp = 0.0;
            for (int64_t x = 0; x < d; ++x) {
              s += double{p.q[iq + x]} * p.k[jk + x];
              dp += double{dout[iq + x]} * p.v[jk + x];
            }
            const double w = std::exp(s * p.scale - r.lse[static_cast<size_t>(i * hq + h)]);
            const double ds = w * (dp - delta) * p.scale;
            for (int64_t x = 0; x < d; ++x) {
              dq[static_cast<size_t>(iq + x)] += ds * p.k[jk + x];
              dk[static_cast<size_t>(jk + x)] += ds * p.q[iq + x];
              dv[static_cast<size_t>(jk + x)] += w * dout[iq + x];
            }
          }
        }
    EXPECT_TRUE(close(got[0], dq, 2e-5, 5e-6)) << "dq, dim " << d;
    EXPECT_TRUE(close(got[1], dk, 2e-5, 2e-5)) << "dk, dim " << d;
    EXPECT_TRUE(close(got[2], dv, 2e-5, 2e-5)) << "dv, dim " << d;
  }
}

TEST_P(Attention, ThreadsChangeNothing) {
  const Problem p({{130, 7, 64}, 4, 2, 40});
  const Array dout = Array::random({p.num_tokens(), 4, 40}, 31);
  expect_same_for_any_threads([&] { return run_backward(ctx_, p, dout); });
}

TEST(AttentionDeathTest, PageOutsideThePoolIsCaught) {
  const Array pages({2, 4, 1, 8}), q({1, 1, 8}), table = Array::integers({5});
  const Array out({1, 1, 8});
  const std::vector<int32_t> cu{0, 1};
  EXPECT_DEATH(attention_forward(cpu_context(), out, {}, q, pages, pages,
                                 {cu, {}, table.view().reshaped({1, 1}), 4}, 1.0f),
               "page 5");
}

TEST_P(Attention, KeysWithoutASlotAreWrittenNowhere) {
  const Array k = Array::random({3, 1, 2}, 1), v = Array::random({3, 1, 2}, 2);
  Array k_pages({2, 2, 1, 2}), v_pages({2, 2, 1, 2});
  k_pages.fill(7), v_pages.fill(7);
  write_kv_pages(ctx_, k_pages, v_pages, k, v, Array::integers({3, -1, 0}));
  for (int64_t i = 0; i < 2; ++i) {
    EXPECT_EQ(k_pages[6 + i], k[i]);
    EXPECT_EQ(v_pages[6 + i], v[i]);
    EXPECT_EQ(k_pages[i], k[4 + i]);
    EXPECT_EQ(v_pages[i], v[4 + i]);
    for (const int64_t untouched : {2, 4}) {
      EXPECT_EQ(k_pages[untouched + i], 7);
      EXPECT_EQ(v_pages[untouched + i], 7);
    }
  }
}

}  // namespace
}  // namespace slimexx::ops::testing
