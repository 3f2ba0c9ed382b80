// Latent attention on the device: values against the CPU's from the same bf16 inputs, and the bits
// of a query over batches, pages, chunks and segments; its moves between widths of heads, and the
// products of heads; and the backward pass of heads as wide as it has them.
#include <array>
#include <numeric>

#include "cpu_context.h"
#include "ops/latent_attention_cuda_problem.h"
#include "slimexx/base/philox.h"
#include "slimexx/ops/attention.h"
#include "slimexx/ops/heads.h"
#include "slimexx/ops/matmul.h"
#include "slimexx/ops/norm.h"
#include "slimexx/ops/rotary.h"

namespace slimexx::ops::testing {
namespace {

class LatentAttentionCuda : public DeviceTest {};
class WideAttentionCuda : public DeviceTest {};
class HeadsCuda : public DeviceTest {};

constexpr double kForwardBound = 5e-3, kStatisticsBound = 1e-4, kGradientBound = 1e-2;

// Blocks are of 64 keys, segments of 2048; tiles of 64 (token, head) rows.
std::vector<LatentCase> latent_cases() {
  return {{{1}, 1, 512, 64},
          {{5, 0, 3}, 20, 512, 64},
          {{64, 65, 1, 129}, 3, 512, 64},
          {{300, 17, 128}, 20, 512, 64},
          {{40, 7}, 128, 512, 64},
          {{33, 70}, 8, 24, 8},
          {{130, 33}, 32, 512, 64},
          {{2047, 1}, 1, 512, 64},
          {{2300, 90}, 2, 512, 64},
          {{4200}, 1, 72, 32}};
}
TEST_F(LatentAttentionCuda, AgreesWithTheCpu) {
  for (const LatentCase& c : latent_cases()) {
    const LatentProblem p(c);
    const OnDevice q(p.q), keys(p.keys), out(p.output()), lse = as_is(p.statistics());
    const PackedLayout packed(p.cu);
    run_op([&](const Context& s) {
      attention_forward(s, out, lse, q, keys, keys, packed.layout(), p.scale);
    });
    const Array expected = p.output(), statistics = p.statistics();
    attention_forward(cpu_context(), expected, statistics, p.q, p.keys, p.keys, {p.cu, {}, {}, 0},
                      p.scale);
    EXPECT_TRUE(close_by_norm(out.back(), expected, kForwardBound)) << name_of(c);
    EXPECT_TRUE(close(lse.back(), doubles(statistics), kStatisticsBound, kStatisticsBound))
        << name_of(c);
  }
}

TEST_F(LatentAttentionCuda, SequenceAloneHasTheBitsOfTheBatch) {
  for (const LatentCase& c : latent_cases()) {
    const LatentProblem p(c);
    const Array batch = forward_packed(p);
    const OnDevice q(p.q), keys(p.keys);
    for (size_t b = 0; b < c.lengths.size(); ++b) {
      const PackedLayout one({0, c.lengths[b]});
      const OnDevice alone(Array({c.lengths[b], c.heads, c.values}));
      const auto rows = [&](const tensor::Tensor& x) { return x.rows(p.cu[b], p.cu[b + 1]); };
      run_op([&](const Context& s) {
        attention_forward(s, alone, {}, rows(q), rows(keys), rows(keys), one.layout(), p.scale);
      });
      EXPECT_TRUE(same_bits(alone.back(), rows(batch))) << "sequence " << b << " of " << name_of(c);
    }
  }
}

TEST_F(LatentAttentionCuda, PagesAndChunksChangeNothing) {
  for (const LatentCase& c : latent_cases()) {
    const LatentProblem p(c);
    const Array packed = forward_packed(p);
    for (const int64_t page_tokens : {16, 64, 128})
      for (const int32_t step : {1, 7, 50, 900}) {
        const int32_t most_chunks = page_tokens == 16 ? 320 : 8;
        if (p.longest() / step > most_chunks) continue;
        for (const int64_t max_split_tokens : {int64_t{INT32_MAX}, int64_t{0}})
          ASSERT_TRUE(same_bits(run_in_chunks(p, page_tokens, step, max_split_tokens), packed))
              << "page " << page_tokens << ", chunks of " << step << ", split up to "
              << max_split_tokens << ", " << name_of(c);
      }
  }
}

// Decode steps of the last query of some sequences, whose keys lie in pages of 64 tokens.
struct LastDecodes {
  const LatentProblem& p;
  const LatentPages pages;
  const OnDevice page_rows;

  explicit LastDecodes(const LatentProblem& problem)
      : p(problem), pages(problem, 64), page_rows(pages.keys) {
    std::vector<int32_t> slots;
    for (size_t b = 0; b < p.shape.lengths.size(); ++b)
      for (int32_t position = 0; position < p.shape.lengths[b]; ++position)
        slots.push_back(pages.slot(b, position));
    const OnDevice keys(p.keys), own_slots = integers_on_device(slots);
    run_op([&](const Context& s) { write_kv_pages(s, page_rows, {}, keys, {}, own_slots); });
  }

  Array run(const std::vector<size_t>& sequences) const {
    const auto count = static_cast<int64_t>(sequences.size());
    const int64_t row = p.shape.heads * p.width(), columns = pages.per_sequence;
    std::vector<int32_t> cu{0}, context;
    Array table({count, columns}, DType::kI32), q({count, p.shape.heads, p.width()});
    for (int64_t i = 0; i < count; ++i) {
      const size_t b = sequences[static_cast<size_t>(i)];
      cu.push_back(cu.back() + 1);
      context.push_back(p.shape.lengths[b] - 1);
      std::copy_n(pages.table.begin() + static_cast<int64_t>(b) * columns, columns,
                  table.view().i32() + i * columns);
      std::copy_n(p.q.view().f32() + (p.cu[b + 1] - 1) * row, row, q.view().f32() + i * row);
    }
    const OnDevice own_q(q), out(Array({count, p.shape.heads, p.shape.values})),
        device_table(table), device_cu = integers_on_device(cu),
                             device_context = integers_on_device(context);
    const AttentionLayout layout{.cu_seqlens = cu,
                                 .context_lens = context,
                                 .page_table = device_table,
                                 .page_tokens = 64,
                                 .device_cu_seqlens = device_cu,
                                 .device_context_lens = device_context};
    run_op([&](const Context& s) {
      attention_forward(s, out, {}, own_q, page_rows, page_rows, layout, p.scale);
    });
    return out.back();
  }
};

// Row `i` of `got` is the last of sequence b.
void expect_last_row(const LatentProblem& p, const Array& got, int64_t i, const Array& packed,
                     size_t b) {
  const int64_t row = p.shape.heads * p.shape.values;
  for (int64_t e = 0; e < row; ++e)
    ASSERT_EQ(got[i * row + e], packed[(p.cu[b + 1] - 1) * row + e])
        << "sequence " << b << ", element " << e << " of " << name_of(p.shape);
}

// Decodes at the end of long contexts: several segments, split and merged.
TEST_F(LatentAttentionCuda, DecodesOfLongContextsHaveTheBitsOfTraining) {
  const LatentProblem p({{6300, 2048, 2049, 70}, 20, 512, 64});
  const Array packed = forward_packed(p);
  const Array got = LastDecodes(p).run({0, 1, 2, 3});
  for (size_t b = 0; b < 4; ++b) expect_last_row(p, got, static_cast<int64_t>(b), packed, b);
}

// A segment is walked by a cluster of thread blocks where there are few of them, by one where there
// are many: rounds of eight blocks of keys that are full, and that are not.
TEST_F(LatentAttentionCuda, DecodesOfFewSequencesHaveTheBitsOfMany) {
  for (const auto& [heads, values, rotary] :
       {std::array<int64_t, 3>{20, 512, 64}, {8, 512, 64}, {32, 448, 64}, {16, 128, 32}}) {
    const LatentProblem p({{1,   63,  64,  65,   128,  448,  511,  512,  513,  575,
                            576, 577, 640, 1023, 1024, 1025, 1500, 2047, 2048, 2100},
                           heads,
                           values,
                           rotary});
    const Array packed = forward_packed(p);
    const LastDecodes decodes(p);
    std::vector<size_t> all(p.shape.lengths.size());
    std::iota(all.begin(), all.end(), size_t{0});
    const Array together = decodes.run(all);
    for (const size_t b : all) {
      expect_last_row(p, together, static_cast<int64_t>(b), packed, b);
      expect_last_row(p, decodes.run({b}), 0, packed, b);
    }
  }
}

TEST_F(LatentAttentionCuda, LaterKeysNeverReachAQuery) {
  const LatentCase c{{200}, 5, 512, 64};
  const LatentProblem p(c);
  LatentProblem spoiled(c);
  constexpr int64_t kFrom = 150;
  for (int64_t i = kFrom * p.width(); i < p.keys.size(); ++i) spoiled.keys[i] = 8192.0f;
  const Array out = forward_packed(p), again = forward_packed(spoiled);
  EXPECT_TRUE(same_bits(again.view().rows(0, kFrom), out.view().rows(0, kFrom)));
  EXPECT_FALSE(same_bits(again.view().rows(kFrom, 200), out.view().rows(kFrom, 200)));
}

struct WideCase {
  std::vector<int32_t> lengths;
  int64_t heads, dim, values;
};

TEST_F(WideAttentionCuda, GradientsAgreeWithTheCpuAndRepeat) {
  const std::vector<WideCase> cases = {{{1}, 1, 256, 256},
                                       {{5, 0, 3}, 3, 256, 256},
                                       {{64, 65, 1, 129}, 4, 192, 128},
                                       {{300, 17, 128}, 20, 256, 256},
                                       {{33, 70}, 8, 24, 16},
                                       {{700, 40}, 2, 192, 128},
                                       {{130}, 3, 96, 72},
                                       {{200, 3}, 2, 128, 64}};
  for (const WideCase& c : cases) {
    std::vector<int32_t> cu{0};
    std::string name = std::to_string(c.heads) + " heads of " + std::to_string(c.dim) + " and " +
                       std::to_string(c.values) + ", seed 31, lengths";
    for (const int32_t length : c.lengths) {
      cu.push_back(cu.back() + length);
      name += " " + std::to_string(length);
    }
    const int64_t tokens = cu.back();
    const float scale = 1.0f / std::sqrt(static_cast<float>(c.dim));
    const Array q = random_bf16({tokens, c.heads, c.dim}, 31),
                k = random_bf16({tokens, c.heads, c.dim}, 32),
                v = random_bf16({tokens, c.heads, c.values}, 33),
                dout = random_bf16({tokens, c.heads, c.values}, 34);
    const Array out({tokens, c.heads, c.values}), lse({tokens, c.heads});
    attention_forward(cpu_context(), out, lse, q, k, v, {cu, {}, {}, 0}, scale);
    const Array out_rounded = rounded(out);
    const Array dq({tokens, c.heads, c.dim}), dk({tokens, c.heads, c.dim}),
        dv({tokens, c.heads, c.values});
    attention_backward(cpu_context(), dq, dk, dv, dout, q, k, v, out_rounded, lse, {cu, {}, {}, 0},
                       scale);
    const OnDevice own_q(q), own_k(k), own_v(v), own_dout(dout), own_out(out_rounded),
        own_lse = as_is(lse);
    const PackedLayout packed(cu);
    Array first[3];
    for (int run = 0; run < 2; ++run) {
      const OnDevice own_dq(dq.clone()), own_dk(dk.clone()), own_dv(dv.clone());
      run_op([&](const Context& s) {
        attention_backward(s, own_dq, own_dk, own_dv, own_dout, own_q, own_k, own_v, own_out,
                           own_lse, packed.layout(), scale);
      });
      const Array got[3] = {own_dq.back(), own_dk.back(), own_dv.back()};
      const Array* expected[3] = {&dq, &dk, &dv};
      for (int i = 0; i < 3; ++i) {
        if (run == 0) {
          EXPECT_TRUE(close_by_norm(got[i], *expected[i], kGradientBound, 1e-6))
              << "gradient " << i << " (q, k, v) of " << name;
          first[i] = got[i];
        } else {
          EXPECT_TRUE(same_bits(got[i], first[i])) << "gradient " << i << " of " << name;
        }
      }
    }
  }
}

struct HeadCase {
  int64_t tokens, heads, n, k;
};
std::vector<HeadCase> head_cases() {
  return {{1, 1, 8, 8},       {3, 20, 256, 512},  {130, 20, 192, 512},
          {300, 3, 128, 512}, {65, 8, 16, 24},    {257, 2, 72, 72},
          {1, 128, 128, 512}, {500, 4, 264, 136}, {900, 20, 256, 512}};
}

// Heads are wider than the product, and what lies behind it is left alone.
TEST_F(HeadsCuda, ProductsHaveTheBitsOfPlainOnes) {
  for (const HeadCase& c : head_cases()) {
    const std::string name = std::to_string(c.tokens) + " tokens, " + std::to_string(c.heads) +
                             " heads, " + std::to_string(c.n) + " by " + std::to_string(c.k);
    const Array x = random_bf16({c.tokens, c.heads, c.k + 8}, 41),
                w = random_bf16({c.heads, c.n, c.k}, 42, 0.1),
                dy = random_bf16({c.tokens, c.heads, c.n + 16}, 43);
    Array y({c.tokens, c.heads, c.n + 8}), dx({c.tokens, c.heads, c.k + 24});
    y.fill(7.0f);
    dx.fill(7.0f);
    const OnDevice own_x(x), own_w(w), own_dy(dy), own_y(y), own_dx(dx);
    run_op([&](const Context& s) {
      head_matmul_forward(s, own_y, own_x, own_w);
      head_matmul_backward_input(s, own_dx, own_dy, own_w);
    });
    const Array got = own_y.back(), got_dx = own_dx.back();
    for (int64_t head = 0; head < c.heads; ++head) {
      Array rows({c.tokens, c.k}), drows({c.tokens, c.n}), weights({c.n, c.k});
      for (int64_t t = 0; t < c.tokens; ++t) {
        for (int64_t i = 0; i < c.k; ++i)
          rows[t * c.k + i] = x[(t * c.heads + head) * (c.k + 8) + i];
        for (int64_t i = 0; i < c.n; ++i)
          drows[t * c.n + i] = dy[(t * c.heads + head) * (c.n + 16) + i];
      }
      for (int64_t i = 0; i < c.n * c.k; ++i) weights[i] = w[head * c.n * c.k + i];
      const OnDevice one_x(rows), one_w(weights), one_y(Array({c.tokens, c.n})), one_dy(drows);
      run_op([&](const Context& s) { matmul_forward(s, one_y, one_x, one_w, {}); });
      const Array plain = one_y.back();
      const Array expected_dx({c.tokens, c.k});
      matmul_backward_input(cpu_context(), expected_dx, drows, weights, false);
      Array part_dx({c.tokens, c.k});
      for (int64_t t = 0; t < c.tokens; ++t) {
        for (int64_t i = 0; i < c.n + 8; ++i)
          ASSERT_EQ(got[(t * c.heads + head) * (c.n + 8) + i], i < c.n ? plain[t * c.n + i] : 7.0f)
              << "token " << t << ", head " << head << ", feature " << i << " of " << name;
        for (int64_t i = 0; i < c.k + 24; ++i) {
          const float value = got_dx[(t * c.heads + head) * (c.k + 24) + i];
          if (i < c.k) part_dx[t * c.k + i] = value;
          if (i >= c.k) {
            ASSERT_EQ(value, 7.0f) << "behind the head, token " << t << ", head " << head;
          }
        }
      }
      EXPECT_TRUE(close_by_norm(part_dx, expected_dx, 3e-3)) << "head " << head << " of " << name;
    }
  }
}

// Of many tokens by wide tiles, of one by narrow ones.
TEST_F(HeadsCuda, RowsOfInputGradientsDependOnThemselvesAlone) {
  const Array w = random_bf16({20, 192, 512}, 42, 0.1), dy = random_bf16({700, 20, 192}, 43);
  const OnDevice own_w(w), own_dy(dy), whole(Array({700, 20, 512})), one(Array({1, 20, 512}));
  run_op([&](const Context& s) { head_matmul_backward_input(s, whole, own_dy, own_w); });
  const Array all = whole.back();
  for (const int64_t row : {0, 63, 64, 127, 128, 699}) {
    run_op([&](const Context& s) {
      head_matmul_backward_input(s, one, own_dy.view().rows(row, row + 1), own_w);
    });
    EXPECT_TRUE(same_bits(one.back(), all.view().rows(row, row + 1))) << "row " << row;
  }
}

TEST_F(HeadsCuda, ColumnsAreCopiedSummedAndRotated) {
  constexpr int64_t kTokens = 37, kHeads = 5;
  const Array x = random_bf16({kTokens, kHeads, 40}, 51), one = random_bf16({kTokens, 1, 24}, 52);
  Array y({kTokens, kHeads, 48});
  const Array sum({kTokens, 16});
  const OnDevice own_x(x), own_one(one), own_y(y), own_sum(sum);
  const auto move = [&](const Context& s, const tensor::Tensor& to, const tensor::Tensor& from,
                        const tensor::Tensor& single, const tensor::Tensor& total) {
    copy_head_columns(s, to, 8, from, 16, 24);
    copy_head_columns(s, to, 32, single, 8, 16);
    sum_head_columns(s, total, from, 24);
  };
  run_op([&](const Context& s) { move(s, own_y, own_x, own_one, own_sum); });
  move(cpu_context(), y, x, one, sum);
  EXPECT_TRUE(same_bits(own_y.back(), y));
  EXPECT_TRUE(within_ulp(own_sum.back(), sum));

  const int64_t half = 8;
  const Array angles = Array::random({64, half}, 53, 2.0);
  Array cos({64, half}), sin({64, half});
  for (int64_t i = 0; i < angles.size(); ++i) {
    cos[i] = std::cos(angles[i]);
    sin[i] = std::sin(angles[i]);
  }
  std::vector<int32_t> positions(kTokens);
  for (size_t t = 0; t < positions.size(); ++t) positions[t] = static_cast<int32_t>(t * 7 % 64);
  const OnDevice own_cos = as_is(cos), own_sin = as_is(sin),
                 own_positions = integers_on_device(positions);
  for (const RotaryStyle style : {RotaryStyle::kHalfSplit, RotaryStyle::kInterleaved})
    for (const bool inverse : {false, true}) {
      const OnDevice turned(x), moved(Array({kTokens, kHeads, 48}));
      Array expected = x.clone();
      const RotaryTable table{own_cos, own_sin, style};
      run_op([&](const Context& s) {
        rotary(s, turned, own_cos, own_sin, own_positions, style, inverse);
        rotate_head_columns(s, moved, 8, own_x, 0, 40, table, own_positions, inverse);
      });
      rotary(cpu_context(), expected, cos, sin, Array::integers(positions), style, inverse);
      EXPECT_TRUE(within_ulp(turned.back(), expected)) << inverse;
      const Array in_place = turned.back(), elsewhere = moved.back();
      for (int64_t i = 0; i < in_place.size(); ++i)
        ASSERT_EQ(elsewhere[i / 40 * 48 + 8 + i % 40], in_place[i]) << "element " << i;
    }
}

// One kernel for what are four ops: the norm, the rotation, and the pages' rows have their bits.
TEST_F(HeadsCuda, LatentRowsHaveTheBitsOfTheirParts) {
  struct Sizes {
    int64_t tokens, rank, width;
  };
  for (const Sizes& c :
       {Sizes{1, 512, 64}, Sizes{37, 512, 64}, Sizes{5, 24, 8}, Sizes{9, 72, 32}}) {
    const int64_t row = c.rank + c.width;
    const Array raw = random_bf16({c.tokens, row + 16}, 61), norm = random_bf16({c.rank}, 62);
    Array cos({64, c.width / 2}), sin({64, c.width / 2});
    for (int64_t i = 0; i < cos.size(); ++i) {
      cos[i] = std::cos(static_cast<float>(i));
      sin[i] = std::sin(static_cast<float>(i));
    }
    std::vector<int32_t> positions, slots;
    for (int64_t t = 0; t < c.tokens; ++t) {
      positions.push_back(static_cast<int32_t>(t * 7 % 64));
      slots.push_back(t == 3 ? -1 : static_cast<int32_t>(c.tokens - 1 - t));
    }
    const OnDevice own_raw(raw), own_norm(norm),
        own_cos = as_is(cos), own_sin = as_is(sin), own_positions = integers_on_device(positions),
        own_slots = integers_on_device(slots), rows(Array({c.tokens, row})),
        pages(Array({1, c.tokens, 1, row})), parts(Array({c.tokens, row}));
    const tensor::Tensor from = own_raw.view().columns(16, row + 16);
    const auto key = [&](const tensor::Tensor& x) {
      return x.columns(c.rank, row).split_last({1, c.width});
    };
    run_op([&](const Context& s) {
      latent_rows_forward(s, rows, from, own_norm, 1e-5f,
                          {own_cos, own_sin, RotaryStyle::kInterleaved}, own_positions, pages,
                          own_slots);
      rms_norm_forward(s, parts.view().columns(0, c.rank), from.columns(0, c.rank), own_norm,
                       1e-5f);
      copy_head_columns(s, key(parts), 0, key(from), 0, c.width);
      rotary(s, key(parts), own_cos, own_sin, own_positions, RotaryStyle::kInterleaved, false);
    });
    const Array got = rows.back(), in_pages = pages.back();
    EXPECT_TRUE(same_bits(got, parts.back())) << c.rank << " and " << c.width;
    for (const int64_t query_rank :
         {8, 768, 1536, 2048, 2056}) {  // the last by a kernel of its own
      const OnDevice x(random_bf16({c.tokens, query_rank + 8}, 63)),
          w(random_bf16({query_rank}, 64)), y(Array({c.tokens, query_rank})),
          expected(Array({c.tokens, query_rank})), again(Array({c.tokens, row}));
      const tensor::Tensor queries = x.view().columns(8, query_rank + 8);
      run_op([&](const Context& s) {
        latent_rows_forward(s, again, from, own_norm, 1e-5f,
                            {own_cos, own_sin, RotaryStyle::kInterleaved}, own_positions, pages,
                            own_slots, {y, queries, w});
        rms_norm_forward(s, expected, queries, w, 1e-5f);
      });
      EXPECT_TRUE(same_bits(y.back(), expected.back())) << query_rank << ", " << c.tokens;
      EXPECT_TRUE(same_bits(again.back(), got)) << query_rank << ", " << c.tokens;
    }
    for (int64_t t = 0; t < c.tokens; ++t)
      for (int64_t i = 0; i < row && slots[static_cast<size_t>(t)] >= 0; ++i)
        ASSERT_EQ(in_pages[slots[static_cast<size_t>(t)] * row + i], got[t * row + i])
            << "token " << t << ", element " << i;
  }
}

}  // namespace
}  // namespace slimexx::ops::testing
