// Tests per-head products on the device, copies between head widths, and latent rows.
#include "slimexx/ops/heads.h"

#include <limits>
#include <string>
#include <vector>

#include "cpu_context.h"
#include "ops/cuda/latent_attention_cuda_problem.h"
#include "slimexx/base/philox.h"
#include "slimexx/kernels/device.h"
#include "slimexx/ops/matmul.h"
#include "slimexx/ops/norm.h"
#include "slimexx/ops/rotary.h"

namespace slimexx::ops::testing {
namespace {

class HeadsCuda : public DeviceTest {};

struct HeadCase {
  int64_t tokens, heads, n, k;
};
std::vector<HeadCase> head_cases() {
  return {{1, 1, 8, 8},       {3, 20, 256, 512},  {130, 20, 192, 512},
          {300, 3, 128, 512}, {65, 8, 16, 24},    {257, 2, 72, 72},
          {1, 128, 128, 512}, {500, 4, 264, 136}, {900, 20, 256, 512}};
}

// Heads are wider than the product's result; their other elements stay unchanged.
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
      run_op([&](const Context& s) { matmul_forward(s, one_y, one_x, {one_w}); });
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

// Many tokens use wide tiles, a single token narrow ones.
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

// One kernel fuses four ops. The norm, the rotation and the rows in pages have the bits of the
// separate ops.
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
                          {own_cos, own_sin, RotaryStyle::kInterleaved}, own_positions,
                          {pages, own_slots});
      rms_norm_forward(s, parts.view().columns(0, c.rank), from.columns(0, c.rank), own_norm,
                       1e-5f);
      copy_head_columns(s, key(parts), 0, key(from), 0, c.width);
      rotary(s, key(parts), own_cos, own_sin, own_positions, RotaryStyle::kInterleaved, false);
    });
    const Array got = rows.back(), in_pages = pages.back();
    EXPECT_TRUE(same_bits(got, parts.back())) << c.rank << " and " << c.width;
    for (const int64_t query_rank :
         {8, 768, 1536, 2048, 2056}) {  // the last size has a separate kernel
      const OnDevice x(random_bf16({c.tokens, query_rank + 8}, 63)),
          w(random_bf16({query_rank}, 64)), y(Array({c.tokens, query_rank})),
          expected(Array({c.tokens, query_rank})), again(Array({c.tokens, row}));
      const tensor::Tensor queries = x.view().columns(8, query_rank + 8);
      run_op([&](const Context& s) {
        latent_rows_forward(s, again, from, own_norm, 1e-5f,
                            {own_cos, own_sin, RotaryStyle::kInterleaved}, own_positions,
                            {pages, own_slots}, {y, queries, w});
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

struct LatentQuerySizes {
  int64_t tokens, heads, nope, rank, width;
};

void check_latent_queries(const std::vector<LatentQuerySizes>& sizes) {
  for (const LatentQuerySizes& c : sizes) {
    const int64_t row = c.rank + c.width, rotated = c.width / 2 - 2;
    const Array w = random_bf16({c.heads, c.nope, c.rank}, 71, 0.1);
    const Array cos = Array::random({64, rotated}, 72, 1.0), sin = Array::random({64, rotated}, 73);
    std::vector<int32_t> positions;
    for (int64_t t = 0; t < c.tokens; ++t) positions.push_back(static_cast<int32_t>(t * 7 % 64));
    const OnDevice own_w(w), nope(random_bf16({c.tokens, c.heads, c.nope}, 74)),
        rope(random_bf16({c.tokens, c.heads, c.width}, 75)),
        own_cos = as_is(cos), own_sin = as_is(sin), own_positions = integers_on_device(positions),
        parts(Array({c.tokens, c.heads, row}));
    Array unwritten({c.tokens, c.heads, row});
    unwritten.fill(std::numeric_limits<float>::quiet_NaN());
    const OnDevice queries(unwritten);
    for (const RotaryStyle style : {RotaryStyle::kHalfSplit, RotaryStyle::kInterleaved}) {
      const RotaryTable table{own_cos, own_sin, style};
      run_op([&](const Context& s) {
        latent_queries_forward(s, queries, nope, own_w, rope, table, own_positions);
        head_matmul_backward_input(s, parts, nope, own_w);
        rotate_head_columns(s, parts, c.rank, rope, 0, c.width, table, own_positions, false);
      });
      EXPECT_TRUE(same_bits(queries.back(), parts.back()))
          << c.tokens << " tokens, " << c.heads << " heads, rank " << c.rank << ", at most "
          << kernels::multiprocessor_limit() << " multiprocessors";
    }
  }
}

// For few tokens the product's kernel also rotates; for more a second kernel does.
TEST_F(HeadsCuda, LatentQueriesHaveTheBitsOfTheirParts) {
  check_latent_queries({{1, 20, 192, 512, 64},
                        {64, 20, 192, 512, 64},
                        {65, 20, 192, 512, 64},
                        {7, 3, 24, 72, 8},
                        {33, 1, 16, 16, 72},
                        {2, 128, 128, 512, 64}});
}

// An H20 has 78 SMs, an H100 PCIe 114, a MIG slice fewer; on these a thread block has several
// tiles. 20 heads are GLM-4.7-Flash's; 32 are GLM-5.2's with TP 2 and DeepSeek-V3's with TP 4.
TEST_F(HeadsCuda, LatentQueriesAreWholeOnChipsOfFewerMultiprocessors) {
  for (const int most : {114, 78, 60, 13, 1}) {
    kernels::limit_multiprocessors(most);
    check_latent_queries({{1, 20, 192, 512, 64}, {33, 32, 192, 512, 64}, {64, 20, 192, 512, 64}});
  }
  kernels::limit_multiprocessors(0);
}

}  // namespace
}  // namespace slimexx::ops::testing
