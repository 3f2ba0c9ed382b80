// Compares attention of some queries over gathered keys, as in context parallelism, with the packed
// form.
#include "cpu_context.h"
#include "ops/attention/attention_problem.h"
#include "slimexx/ops/sparse_attention.h"

namespace slimexx::ops::testing {
namespace {

SLX_OPS_SUITE(GatheredAttention);

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Ascending chunks [begin, end) of sequences, as one batch.
struct Part {
  std::vector<int32_t> cu{0}, context, starts, rows;
  int64_t num_keys = 0;

  void add(const Problem& p, size_t b, int32_t begin, int32_t end) {
    num_keys = p.num_tokens();
    context.push_back(begin);
    starts.push_back(p.cu[b]);
    for (int32_t t = begin; t < end; ++t) rows.push_back(p.cu[b] + t);
    cu.push_back(static_cast<int32_t>(rows.size()));
  }
  AttentionLayout layout() const {
    AttentionLayout layout{cu, context, {}, 0};
    layout.key_starts = starts;
    layout.num_keys = num_keys;
    return layout;
  }
  // The part's rows of x [T,N] or [T,heads,D].
  Array take(const Array& x) const {
    const tensor::Tensor all = x;
    const int64_t n = std::ssize(rows), width = all.stride(0) * 4;
    Array own = all.num_dims() == 2 ? Array({n, all.dim(1)}, all.dtype())
                                    : Array({n, all.dim(1), all.dim(2)}, all.dtype());
    for (int64_t i = 0; i < n; ++i)
      std::copy_n(all.data<char>() + rows[static_cast<size_t>(i)] * width, width,
                  own.view().data<char>() + i * width);
    return own;
  }
};

// Chunks r and 2n - 1 - r, out of 2n, of every sequence.
std::vector<Part> zigzag(const Problem& p, int32_t n) {
  std::vector<Part> parts(static_cast<size_t>(n));
  for (int32_t rank = 0; rank < n; ++rank)
    for (size_t b = 0; b + 1 < p.cu.size(); ++b)
      for (const int32_t c : {rank, 2 * n - 1 - rank}) {
        const int32_t length = p.cu[b + 1] - p.cu[b];
        parts[static_cast<size_t>(rank)].add(p, b, length * c / (2 * n),
                                             length * (c + 1) / (2 * n));
      }
  return parts;
}

struct Results {
  Array out, lse, dq, dk, dv;
};

Results run(const Context& ctx, const Problem& p, const Array& q, const Array& dout,
            const AttentionLayout& layout) {
  const int64_t tokens = q.view().dim(0);
  Results r{Array({tokens, p.shape.query_heads, p.shape.dim}), Array({tokens, p.shape.query_heads}),
            Array({tokens, p.shape.query_heads, p.shape.dim}), p.k.clone(), p.v.clone()};
  for (Array* x : {&r.out, &r.lse, &r.dq, &r.dk, &r.dv}) x->fill(kNan);
  attention_forward(ctx, r.out, r.lse, q, p.k, p.v, layout, p.scale);
  attention_backward(ctx, r.dq, r.dk, r.dv, dout, q, p.k, p.v, r.out, r.lse, layout, p.scale);
  return r;
}

// Expects rows with the bits of the packed form. The gradients of keys, summed over the parts,
// agree with the packed form's.
void expect_packed(const Context& ctx, const Problem& p, const std::vector<Part>& parts,
                   const Array& selected = {}) {
  const Array dout = Array::random({p.num_tokens(), p.shape.query_heads, p.shape.dim}, 31);
  AttentionLayout packed = p.packed();
  if (selected.view().defined()) packed.selected = selected;
  const Results whole = run(ctx, p, p.q, dout, packed);
  std::vector<double> dk(static_cast<size_t>(p.k.size())), dv = dk;
  for (const Part& part : parts) {
    AttentionLayout layout = part.layout();
    const Array own = selected.view().defined() ? part.take(selected) : Array{};
    if (selected.view().defined()) layout.selected = own;
    const Results r = run(ctx, p, part.take(p.q), part.take(dout), layout);
    EXPECT_TRUE(same_bits(r.out, part.take(whole.out)));
    EXPECT_TRUE(same_bits(r.lse, part.take(whole.lse)));
    EXPECT_TRUE(same_bits(r.dq, part.take(whole.dq)));
    for (int64_t i = 0; i < p.k.size(); ++i) {
      dk[static_cast<size_t>(i)] += double{r.dk[i]};
      dv[static_cast<size_t>(i)] += double{r.dv[i]};
    }
  }
  EXPECT_TRUE(close(whole.dk, dk, 1e-5, 1e-5));
  EXPECT_TRUE(close(whole.dv, dv, 1e-5, 1e-5));
}

TEST_P(GatheredAttention, ZigzagChunksHaveTheBitsOfPackedRows) {
  std::vector<cases::AttentionCase> problems = cases::attention_values();
  problems.push_back({{2, 0, 300, 1, 5}, 4, 2, 16});
  for (const auto& c : problems)
    for (const int32_t n : {1, 2, 3}) {
      SCOPED_TRACE(::testing::Message() << n << " ranks, dim " << c.dim);
      const Problem p(c);
      expect_packed(ctx_, p, zigzag(p, n));
    }
}

TEST_P(GatheredAttention, WithSelectedKeys) {
  const Problem p({{150, 7, 90}, 6, 2, 24});
  for (const int64_t k : {1, 20, 200}) {
    Array ids({p.num_tokens(), k}, DType::kI32);
    for (size_t b = 0; b + 1 < p.cu.size(); ++b)
      for (int32_t row = p.cu[b]; row < p.cu[b + 1]; ++row) {
        // Each query selects consecutive keys, but not its latest ones.
        const int32_t keys = row - p.cu[b] + 1;
        int32_t* own = ids.view().i32() + row * k;
        const auto seen = static_cast<int32_t>(std::min<int64_t>(keys, k));
        for (int32_t i = 0; i < k; ++i) own[i] = i < seen ? i + (keys - seen) / 3 : -1;
      }
    expect_packed(ctx_, p, zigzag(p, 3), ids);
  }
}

// The lightning indexer: scores and selection for the queries of a part.
TEST_P(GatheredAttention, IndexScoresAreThoseOfPackedRows) {
  const Problem p({{150, 7, 90}, 4, 1, 16});
  const Array weights = Array::random({p.num_tokens(), 4}, 5);
  constexpr int64_t kTopK = 11;
  const auto select = [&](const Array& q, const Array& w, const AttentionLayout& layout) {
    const int64_t rows = q.view().dim(0);
    Array scores({rows, max_sequence_keys(layout, rows)}), ids({rows, kTopK}, DType::kI32);
    index_scores(ctx_, scores, q, w, p.k, layout, 0, kTopK, 0.25f);
    select_keys(ctx_, ids, scores, layout, 0);
    return ids;
  };
  const Array whole = select(p.q, weights, p.packed());
  for (const Part& part : zigzag(p, 2)) {
    const Array own = select(part.take(p.q), part.take(weights), part.layout());
    const Array expected = part.take(whole);
    for (int64_t i = 0; i < std::ssize(part.rows) * kTopK; ++i)
      ASSERT_EQ(own.view().i32()[i], expected.view().i32()[i]) << "row " << i / kTopK;
  }
}

// Sequences without a query, and keys after all queries, still get zero gradients.
TEST_P(GatheredAttention, UnseenKeysGetNoGradient) {
  const Problem p({{9, 6, 8}, 2, 1, 8});
  Part part;
  part.add(p, 0, 4, 4);
  part.add(p, 1, 1, 3);
  part.add(p, 2, 0, 0);
  const Array dout = Array::random({2, 2, 8}, 31);
  const Results r = run(ctx_, p, part.take(p.q), dout, part.layout());
  for (int64_t row = 0; row < p.num_tokens(); ++row)
    for (int64_t i = row * 8; i < row * 8 + 8; ++i) {
      const bool is_seen = row >= 9 && row < 12;
      EXPECT_EQ(r.dk[i] != 0, is_seen) << "key " << row;
      EXPECT_EQ(r.dv[i] != 0, is_seen) << "key " << row;
    }
  Part none;
  for (size_t b = 0; b < 3; ++b) none.add(p, b, 2, 2);
  const Results empty = run(ctx_, p, none.take(p.q), none.take(p.q), none.layout());
  for (int64_t i = 0; i < p.k.size(); ++i) EXPECT_EQ(empty.dk[i], 0.0f);
}

TEST_P(GatheredAttention, ThreadsChangeNothing) {
  const Problem p({{130, 7, 64}, 4, 2, 40});
  const Array dout = Array::random({p.num_tokens(), 4, 40}, 31);
  const Part part = zigzag(p, 2)[1];
  const Array q = part.take(p.q), own = part.take(dout);
  expect_same_for_any_threads([&] {
    const Results r = run(ctx_, p, q, own, part.layout());
    return std::vector<Array>{r.out, r.dq, r.dk, r.dv};
  });
}

TEST(GatheredAttentionDeathTest, KeysOfAnotherSequenceAreCaught) {
  const Problem p({{5, 4}, 1, 1, 8});
  Part part;
  part.add(p, 0, 3, 5);
  part.add(p, 1, 0, 4);
  part.context[0] = 4;
  Array out({6, 1, 8});
  EXPECT_DEATH(
      attention_forward(cpu_context(), out, {}, part.take(p.q), p.k, p.v, part.layout(), p.scale),
      "keys .0, 6. of sequence 0 exceed the end 5");
}

}  // namespace
}  // namespace slimexx::ops::testing
