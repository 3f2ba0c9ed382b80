#include "slimexx/ops/rotary.h"
#include "ops/op_cases.h"
#include "ops/testing.h"
#include "slimexx/ops/heads.h"
#include "slimexx/ops/norm.h"

namespace slimexx::ops::testing {
namespace {

SLX_OPS_SUITE(Rotary);

struct Tables {
  Array cos, sin;
  Tables(int64_t positions, int64_t half) : cos({positions, half}), sin({positions, half}) {
    for (int64_t p = 0; p < positions; ++p)
      for (int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(p) *
                             std::pow(1e4, -static_cast<double>(i) / static_cast<double>(half));
        cos[p * half + i] = static_cast<float>(std::cos(angle));
        sin[p * half + i] = static_cast<float>(std::sin(angle));
      }
  }
};

TEST_P(Rotary, PairsTurnByTheirAngle) {
  for (const auto& c : cases::rotary_values())
    for (RotaryStyle style : {RotaryStyle::kHalfSplit, RotaryStyle::kInterleaved}) {
      const int64_t half = c.rotary_dim / 2;
      const Tables tables(40, half);
      const Array before = Array::random({c.tokens, c.heads, c.dim}, 1);
      std::vector<int32_t> positions;
      for (int64_t t = 0; t < c.tokens; ++t)
        positions.push_back(static_cast<int32_t>((t * 17) % 40));
      Array x = before.clone();
      rotary(ctx_, x, tables.cos, tables.sin, Array::integers(positions), style, false);
      std::vector<double> expected = doubles(before);
      for (int64_t t = 0; t < c.tokens; ++t)
        for (int64_t h = 0; h < c.heads; ++h)
          for (int64_t i = 0; i < half; ++i) {
            const bool split = style == RotaryStyle::kHalfSplit;
            const auto a = static_cast<size_t>((t * c.heads + h) * c.dim + (split ? i : 2 * i));
            const size_t b = a + static_cast<size_t>(split ? half : 1);
            const int64_t entry = positions[static_cast<size_t>(t)] * half + i;
            const double xa = expected[a], xb = expected[b], co = tables.cos[entry],
                         si = tables.sin[entry];
            expected[a] = xa * co - xb * si;
            expected[b] = xa * si + xb * co;
          }
      EXPECT_TRUE(close(x, expected, 1e-6, 3e-7)) << c.dim;
      rotary(ctx_, x, tables.cos, tables.sin, Array::integers(positions), style, true);
      EXPECT_TRUE(close(x, doubles(before), 1e-6, 1e-6)) << "there and back, " << c.dim;
    }
}

// Rotates into other columns of other heads; their remaining columns stay unchanged.
TEST_P(Rotary, ColumnsTurnOnTheirWay) {
  const Tables tables(50, 8);
  const Array positions = Array::integers({49, 0, 7});
  for (const RotaryStyle style : {RotaryStyle::kHalfSplit, RotaryStyle::kInterleaved})
    for (const bool inverse : {false, true}) {
      const Array x = Array::random({3, 2, 24}, 1);
      Array turned({3, 2, 20}), y({3, 2, 32});
      y.fill(7.0f);
      for (int64_t i = 0; i < turned.size(); ++i) turned[i] = x[i / 20 * 24 + 4 + i % 20];
      rotary(ctx_, turned, tables.cos, tables.sin, positions, style, inverse);
      rotate_head_columns(ctx_, y, 8, x, 4, 20, {tables.cos, tables.sin, style}, positions,
                          inverse);
      for (int64_t i = 0; i < y.size(); ++i) {
        const int64_t column = i % 32 - 8;
        EXPECT_EQ(y[i], column >= 0 && column < 20 ? turned[i / 32 * 20 + column] : 7.0f) << i;
      }
    }
}

TEST_P(Rotary, LatentRowsAreNormedTurnedAndPutInPages) {
  const Tables tables(50, 4);
  const Array positions = Array::integers({3, 40, 0}), slots = Array::integers({2, -1, 0});
  const Array raw = Array::random({3, 24}, 1), norm = Array::random({16}, 2);
  Array latent({3, 24}), expected({3, 24}), pages({1, 3, 1, 24});
  latent_rows_forward(ctx_, latent, raw, norm, 1e-5f,
                      {tables.cos, tables.sin, RotaryStyle::kInterleaved}, positions,
                      {pages, slots});
  rms_norm_forward(ctx_, expected.view().columns(0, 16), raw.view().columns(0, 16), norm, 1e-5f);
  for (int64_t i = 0; i < 24; ++i) expected[i / 8 * 24 + 16 + i % 8] = raw[i / 8 * 24 + 16 + i % 8];
  rotary(ctx_, expected.view().columns(16, 24).split_last({1, 8}), tables.cos, tables.sin,
         positions, RotaryStyle::kInterleaved, false);
  EXPECT_TRUE(same_bits(latent, expected));
  const Array queries = Array::random({3, 32}, 3), query_norm = Array::random({32}, 4);
  Array normed({3, 32}), expected_normed({3, 32});
  latent_rows_forward(ctx_, latent, raw, norm, 1e-5f,
                      {tables.cos, tables.sin, RotaryStyle::kInterleaved}, positions,
                      {pages, slots}, {normed, queries, query_norm});
  rms_norm_forward(ctx_, expected_normed, queries, query_norm, 1e-5f);
  EXPECT_TRUE(same_bits(normed, expected_normed));
  EXPECT_TRUE(same_bits(latent, expected));
  for (int64_t i = 0; i < 24; ++i) {
    EXPECT_EQ(pages[2 * 24 + i], latent[i]) << i;
    EXPECT_EQ(pages[24 + i], 0.0f) << i;
    EXPECT_EQ(pages[i], latent[2 * 24 + i]) << i;
  }
}

TEST_P(Rotary, LatentQueriesAreMultipliedAndTurned) {
  const Tables tables(50, 4);
  const Array positions = Array::integers({3, 40, 0});
  const Array nope = Array::random({3, 2, 6}, 1), w = Array::random({2, 6, 16}, 2),
              rope = Array::random({3, 2, 8}, 3);
  for (RotaryStyle style : {RotaryStyle::kHalfSplit, RotaryStyle::kInterleaved}) {
    const RotaryTable table{tables.cos, tables.sin, style};
    Array queries({3, 2, 24}), expected({3, 2, 24});
    latent_queries_forward(ctx_, queries, nope, w, rope, table, positions);
    head_matmul_backward_input(ctx_, expected, nope, w);
    rotate_head_columns(ctx_, expected, 16, rope, 0, 8, table, positions, false);
    EXPECT_TRUE(same_bits(queries, expected));
  }
}

// The backward pass of a rotation is its transpose: <R x, y> = <x, R' y>.
TEST_P(Rotary, InverseIsTheTranspose) {
  const Tables tables(50, 16);
  for (RotaryStyle style : {RotaryStyle::kHalfSplit, RotaryStyle::kInterleaved}) {
    const Array x = Array::random({3, 2, 48}, 1), y = Array::random({3, 2, 48}, 2);
    const Array positions = Array::integers({49, 0, 7});
    Array rx = x.clone(), ry = y.clone();
    rotary(ctx_, rx, tables.cos, tables.sin, positions, style, false);
    rotary(ctx_, ry, tables.cos, tables.sin, positions, style, true);
    double left = 0.0, right = 0.0;
    for (int64_t i = 0; i < x.size(); ++i) {
      left += double{rx[i]} * y[i];
      right += double{x[i]} * ry[i];
    }
    EXPECT_NEAR(left, right, 1e-5);
  }
}

TEST_P(Rotary, TokenAloneStridesAndThreads) {
  const Tables tables(300, 32);
  std::vector<int32_t> positions;
  for (int32_t t = 0; t < 300; ++t) positions.push_back(299 - t);
  expect_same_for_any_threads([&] {
    Array x = Array::random({300, 3, 64}, 5);
    rotary(ctx_, x, tables.cos, tables.sin, Array::integers(positions), RotaryStyle::kHalfSplit,
           false);
    return std::vector<Array>{x};
  });
  Array fused = Array::random({4, 5 * 64}, 6);
  const tensor::Tensor view = fused.view().columns(64, 4 * 64).split_columns(3);
  Array dense({4, 3, 64});
  for (int64_t i = 0; i < dense.size(); ++i) dense[i] = at(view, i);
  const Array four = Array::integers({3, 9, 27, 81});
  rotary(ctx_, view, tables.cos, tables.sin, four, RotaryStyle::kInterleaved, false);
  rotary(ctx_, dense, tables.cos, tables.sin, four, RotaryStyle::kInterleaved, false);
  EXPECT_TRUE(same_bits(view, dense));
}

// 3 query heads and 2 heads each of keys and values, of 8 elements, 4 of them rotated. The output
// may omit the values: all other bits stay the same, packed or paged.
TEST_P(Rotary, ValuesMayStay) {
  const QkvHeads heads{3, 2, 8};
  const Tables tables(40, 2);
  const RotaryTable table{tables.cos, tables.sin, RotaryStyle::kHalfSplit};
  const Array in = Array::random({5, 7 * 8}, 7), positions = Array::integers({0, 3, 1, 39, 8}),
              slots = Array::integers({4, 0, -1, 7, 2}), none;
  for (const bool norm : {false, true}) {
    const Array q_norm = norm ? Array::random({8}, 8) : none,
                k_norm = norm ? Array::random({8}, 9) : none;
    const auto run = [&](const Array& out, const KvSlots& kv) {
      qk_norm_rotary_forward(ctx_, out, in, q_norm, k_norm, 1e-5f, table, positions, kv, heads);
    };
    const Array wide({5, 7 * 8}), narrow({5, 5 * 8});
    run(wide, {});
    run(narrow, {});
    EXPECT_TRUE(same_bits(narrow, wide.view().columns(0, 5 * 8))) << norm;
    EXPECT_TRUE(same_bits(wide.view().columns(5 * 8, 7 * 8), in.view().columns(5 * 8, 7 * 8)));
    const Array k({2, 4, 2, 8}), v({2, 4, 2, 8}), narrow_k({2, 4, 2, 8}), narrow_v({2, 4, 2, 8});
    run(wide, {k, v, slots});
    run(narrow, {narrow_k, narrow_v, slots});
    EXPECT_TRUE(same_bits(narrow_k, k)) << norm;
    EXPECT_TRUE(same_bits(narrow_v, v)) << norm;
    for (int64_t i = 0; i < 2 * 8; ++i) EXPECT_EQ(v[4 * 2 * 8 + i], in[5 * 8 + i]) << norm;
  }
}

}  // namespace
}  // namespace slimexx::ops::testing
