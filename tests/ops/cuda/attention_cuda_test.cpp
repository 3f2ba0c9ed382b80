// Attention forward on the device: values against the CPU's from the same bf16 inputs; and equal
// bits for a query in any batch, pages and chunks.
#include <numeric>

#include "cpu_context.h"
#include "ops/cuda/attention_cuda_problem.h"
#include "slimexx/ops/attention.h"

namespace slimexx::ops::testing {
namespace {

class AttentionCuda : public DeviceTest {};

// Relative error over a tensor: probabilities and the output are rounded to bf16, by at most half a
// step (2^-8) and a third of that on average; sums are f32.
constexpr double kForwardBound = 5e-3;
constexpr double kStatisticsBound = 1e-4;  // log-sum-exp, f32

Array forward_packed(const AttentionProblem& p) {
  const OnDevice q(p.q), k(p.k), v(p.v), out(p.output());
  const PackedLayout packed(p.cu);
  run_op(
      [&](const Context& s) { attention_forward(s, out, {}, q, k, v, packed.layout(), p.scale); });
  return out.back();
}

TEST_F(AttentionCuda, ForwardAgreesWithTheCpu) {
  for (const auto& c : attention_cases()) {
    const AttentionProblem p(c);
    const OnDevice q(p.q), k(p.k), v(p.v), out(p.output()), lse = as_is(p.statistics());
    const PackedLayout packed(p.cu);
    const auto forward = [&](const Context& s) {
      attention_forward(s, out, lse, q, k, v, packed.layout(), p.scale);
    };
    if (!is_served(c)) {
      expect_unserved(forward, name_of(c));
      continue;
    }
    run_op(forward);
    const Array expected = p.output(), statistics = p.statistics();
    attention_forward(cpu_context(), expected, statistics, p.q, p.k, p.v, p.on_cpu(), p.scale);
    EXPECT_TRUE(close_by_norm(out.back(), expected, kForwardBound)) << name_of(c);
    EXPECT_TRUE(close(lse.back(), doubles(statistics), kStatisticsBound, kStatisticsBound))
        << name_of(c);
  }
}

// Large scores overflow unless the running maximum is subtracted.
TEST_F(AttentionCuda, LargeScoresDoNotOverflow) {
  for (const int64_t dim : {64, 128}) {
    AttentionProblem p({{150}, 2, 1, dim});
    for (int64_t i = 0; i < p.q.size(); ++i) p.q[i] *= 32.0f;
    const Array expected = p.output();
    attention_forward(cpu_context(), expected, {}, p.q, p.k, p.v, p.on_cpu(), p.scale);
    EXPECT_TRUE(close_by_norm(forward_packed(p), expected, kForwardBound)) << dim;
  }
}

TEST_F(AttentionCuda, SequenceAloneHasTheBitsOfTheBatch) {
  for (const auto& c : attention_cases()) {
    if (!is_served(c)) continue;
    const AttentionProblem p(c);
    const Array batch = forward_packed(p);
    const OnDevice q(p.q), k(p.k), v(p.v);
    for (size_t b = 0; b < c.lengths.size(); ++b) {
      const PackedLayout one({0, c.lengths[b]});
      const OnDevice alone(Array({c.lengths[b], c.query_heads, c.dim}));
      const auto rows = [&](const tensor::Tensor& x) { return x.rows(p.cu[b], p.cu[b + 1]); };
      run_op([&](const Context& s) {
        attention_forward(s, alone, {}, rows(q), rows(k), rows(v), one.layout(), p.scale);
      });
      EXPECT_TRUE(same_bits(alone.back(), rows(batch))) << "sequence " << b << " of " << name_of(c);
    }
  }
}

// Keys and values of a problem in shuffled pages; slots that no sequence has reached hold NaN.
struct Pages {
  int64_t page_tokens;
  Array k, v, table;

  Pages(const AttentionProblem& p, int64_t tokens_per_page) : page_tokens(tokens_per_page) {
    const auto num_sequences = static_cast<int64_t>(p.shape.lengths.size());
    const int64_t longest = *std::max_element(p.shape.lengths.begin(), p.shape.lengths.end());
    const int64_t per_sequence = (longest + page_tokens - 1) / page_tokens;
    k = Array({num_sequences * per_sequence, page_tokens, p.shape.kv_heads, p.shape.dim});
    v = k.clone();
    k.fill(std::nanf(""));
    v.fill(std::nanf(""));
    std::vector<int32_t> order(static_cast<size_t>(num_sequences * per_sequence));
    std::iota(order.begin(), order.end(), 0);
    PhiloxStream stream(3, 1);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[stream.next_below(i)]);
    table = Array({num_sequences, per_sequence}, DType::kI32);
    std::copy(order.begin(), order.end(), table.view().i32());
  }
  void put(const AttentionProblem& p, size_t sequence, int32_t position) {
    const int64_t row = p.shape.kv_heads * p.shape.dim, from = (p.cu[sequence] + position) * row;
    const int64_t page =
        table.view()
            .i32()[static_cast<int64_t>(sequence) * table.view().dim(1) + position / page_tokens];
    const int64_t to = (page * page_tokens + position % page_tokens) * row;
    std::copy_n(p.k.view().f32() + from, row, k.view().f32() + to);
    std::copy_n(p.v.view().f32() + from, row, v.view().f32() + to);
  }
};

// Runs tokens [first, first + step) of every sequence through pages and adds their rows to `out`.
void run_chunk(const AttentionProblem& p, Pages& pages, int32_t first, int32_t step, Array& out) {
  std::vector<int32_t> cu{0}, context, rows;
  for (size_t b = 0; b < p.shape.lengths.size(); ++b) {
    const int32_t begin = std::min(first, p.shape.lengths[b]),
                  end = std::min(first + step, p.shape.lengths[b]);
    cu.push_back(cu.back() + end - begin);
    context.push_back(begin);
    for (int32_t position = begin; position < end; ++position) {
      pages.put(p, b, position);
      rows.push_back(p.cu[b] + position);
    }
  }
  const int64_t q_row = p.shape.query_heads * p.shape.dim;
  Array q({static_cast<int64_t>(rows.size()), p.shape.query_heads, p.shape.dim});
  for (size_t i = 0; i < rows.size(); ++i)
    std::copy_n(p.q.view().f32() + rows[i] * q_row, q_row,
                q.view().f32() + static_cast<int64_t>(i) * q_row);
  const OnDevice dq(q), k(pages.k), v(pages.v), table(pages.table), part(q.clone()),
      device_cu = integers_on_device(cu), device_context = integers_on_device(context);
  const AttentionLayout layout{.cu_seqlens = cu,
                               .context_lens = context,
                               .page_table = table,
                               .page_tokens = pages.page_tokens,
                               .context_is_written = true,
                               .device_cu_seqlens = device_cu,
                               .device_context_lens = device_context};
  run_op([&](const Context& s) { attention_forward(s, part, {}, dq, k, v, layout, p.scale); });
  const Array got = part.back();
  for (size_t i = 0; i < rows.size(); ++i)
    std::copy_n(got.view().f32() + static_cast<int64_t>(i) * q_row, q_row,
                out.view().f32() + rows[i] * q_row);
}

Array run_in_chunks(const AttentionProblem& p, int64_t page_tokens, int32_t step) {
  Pages pages(p, page_tokens);
  Array out = p.output();
  const int32_t longest = *std::max_element(p.shape.lengths.begin(), p.shape.lengths.end());
  for (int32_t first = 0; first < longest; first += step) run_chunk(p, pages, first, step, out);
  return out;
}

TEST_F(AttentionCuda, PagesAndChunksChangeNothing) {
  for (const auto& c : attention_cases()) {
    if (!is_served(c)) continue;
    const AttentionProblem p(c);
    const Array packed = forward_packed(p);
    const bool is_long = p.cu.back() > 1000;
    for (const int64_t page_tokens : {16, 64, 128})
      for (const int32_t step : {1, 7, 64, 1000}) {
        if (step == 1 && (page_tokens != 16 || is_long)) continue;
        if (is_long && step == 7) continue;
        ASSERT_TRUE(same_bits(run_in_chunks(p, page_tokens, step), packed))
            << "page " << page_tokens << ", chunks of " << step << ", " << name_of(c);
      }
  }
}

TEST_F(AttentionCuda, PagesOfOtherSizesAreRefused) {
  const AttentionProblem p({{40}, 4, 2, 64});
  for (const int64_t page_tokens : {1, 8, 24, 100}) {
    Pages pages(p, page_tokens);
    for (int32_t t = 0; t < 40; ++t) pages.put(p, 0, t);
    const std::vector<int32_t> context{0};
    const OnDevice q(p.q), k(pages.k), v(pages.v), table(pages.table), out(p.output()),
        device_cu = integers_on_device(p.cu), device_context = integers_on_device(context);
    const AttentionLayout layout{.cu_seqlens = p.cu,
                                 .context_lens = context,
                                 .page_table = table,
                                 .page_tokens = page_tokens,
                                 .device_cu_seqlens = device_cu,
                                 .device_context_lens = device_context};
    expect_unserved(
        [&](const Context& s) { attention_forward(s, out, {}, q, k, v, layout, p.scale); },
        "pages of " + std::to_string(page_tokens));
  }
}

// Masked keys must not change the result, however large they are.
TEST_F(AttentionCuda, LaterKeysNeverReachAQuery) {
  for (const int64_t dim : {64, 128}) {
    const AttentionProblem p({{200}, 4, 2, dim});
    AttentionProblem spoiled({{200}, 4, 2, dim});
    constexpr int64_t kFrom = 150;
    for (int64_t i = kFrom * 2 * dim; i < p.k.size(); ++i) spoiled.k[i] = spoiled.v[i] = 8192.0f;
    const Array out = forward_packed(p), again = forward_packed(spoiled);
    EXPECT_TRUE(same_bits(again.view().rows(0, kFrom), out.view().rows(0, kFrom))) << dim;
    EXPECT_FALSE(same_bits(again.view().rows(kFrom, 200), out.view().rows(kFrom, 200))) << dim;
  }
}

TEST_F(AttentionCuda, StridedViewsOfOneProjection) {
  const AttentionProblem p({{33, 170}, 4, 2, 64});
  Array fused({p.cu.back(), 8 * 64});
  for (int64_t t = 0; t < p.cu.back(); ++t) {
    float* row = fused.view().f32() + t * 512;
    std::copy_n(p.q.view().f32() + t * 256, 256, row);
    std::copy_n(p.k.view().f32() + t * 128, 128, row + 256);
    std::copy_n(p.v.view().f32() + t * 128, 128, row + 384);
  }
  const OnDevice qkv(fused), wide(Array({p.cu.back(), 320}));
  const PackedLayout packed(p.cu);
  const auto part = [&](int64_t begin, int64_t heads) {
    return qkv.view().columns(begin * 64, (begin + heads) * 64).split_columns(heads);
  };
  const tensor::Tensor out = wide.view().columns(64, 320).split_columns(4);
  run_op([&](const Context& s) {
    attention_forward(s, out, {}, part(0, 4), part(4, 2), part(6, 2), packed.layout(), p.scale);
  });
  const Array got = wide.back();
  EXPECT_TRUE(same_bits(got.view().columns(64, 320).split_columns(4), forward_packed(p)));
  for (int64_t i = 0; i < got.size(); ++i)
    if (i % 320 < 64) {
      ASSERT_EQ(got[i], 0.0f) << "wrote outside its columns: " << i;
    }
}

}  // namespace
}  // namespace slimexx::ops::testing
