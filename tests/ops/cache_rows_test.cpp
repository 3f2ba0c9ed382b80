// Keys and values rounded to FP8: what the pages hold, and that attention over pages computes with
// exactly the rounded values.
#include "slimexx/ops/cache_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "cpu_context.h"
#include "ops/attention/attention_problem.h"
#include "slimexx/ops/rotary.h"
#include "slimexx/ops/sparse_attention.h"

namespace slimexx::ops::testing {
namespace {

using tensor::DType;

SLX_OPS_SUITE(CachedRows);

// FP8 pages of the shape of `pages` [num_pages, page_tokens, heads, dim], filled with NaN.
struct Fp8Pages {
  explicit Fp8Pages(const Array& pages)
      : shape{pages.view().dim(0), pages.view().dim(1), pages.view().dim(2), pages.view().dim(3)},
        bytes(static_cast<size_t>(pages.size()), tensor::kF8E4M3Nan),
        scales(static_cast<size_t>(pages.size() / shape[3]), 0x7FC0) {}
  CacheRows rows() {
    return {{bytes.data(), DType::kF8E4M3, {}, {shape[0], shape[1], shape[2], shape[3]}},
            {scales.data(), DType::kBF16, {}, {shape[0], shape[2], shape[1]}}};
  }
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;
  std::vector<uint16_t> scales;
};

// Pages of latent rows; `unused` fills the bytes.
struct LatentPages {
  LatentPages(int64_t num_pages, int64_t page_tokens, int64_t rank, int64_t rotary_width)
      : form(tensor::latent_f8_row(rank, rotary_width, sizeof(float))),
        shape{num_pages, page_tokens, 1, form.bytes},
        bytes(static_cast<size_t>(num_pages * page_tokens * form.bytes), 0xFF) {}
  Tensor rows() { return {bytes.data(), DType::kU8, {}, {shape[0], shape[1], 1, shape[3]}}; }
  tensor::F8LatentRow form;
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;
};

TEST(CacheScale, IsRoundedUpToBf16) {
  // 449 / 448 = 1.00223 lies between the bf16 values 1 and 1.0078125.
  EXPECT_EQ(tensor::f8_key_scale(448).scale, 1.0f);
  EXPECT_EQ(tensor::f8_key_scale(449).scale, 1.0078125f);
  EXPECT_EQ(tensor::f8_key_scale(449).factor, 1 / 1.0078125f);
  EXPECT_EQ(tensor::f8_key_scale(0).scale, tensor::f8_key_scale(1e-10f).scale);
  EXPECT_TRUE(std::isnan(tensor::f8_key_scale(std::numeric_limits<float>::infinity()).scale));
  EXPECT_TRUE(std::isnan(tensor::f8_key_scale(std::nanf("")).scale));
  for (uint32_t bits = 0; bits < 0x7F800000; bits += 0x8123) {
    const float amax = std::bit_cast<float>(bits), scale = tensor::f8_key_scale(amax).scale;
    EXPECT_EQ(std::bit_cast<uint32_t>(scale) & 0xFFFF, 0u) << amax;
    EXPECT_GE(scale, amax / 448) << amax;
    EXPECT_LE(scale, std::max(amax, 1e-10f) / 448 * 1.0079f) << amax;
  }
}

TEST_P(CachedRows, KeysAreRoundedAndPutInPages) {
  // Head 0: the largest is 448, so the scale is 1 and 448, -1.0625 (a tie, to -1) and 0.3 round as
  // plain e4m3. Head 1: the largest is 896, so the scale is 2 and 17 rounds to 16 (a tie).
  Array keys({3, 2, 3});
  const std::vector<float> values = {448, -1.0625f, 0.3f, 896, 17, -1, 0, 0, 0,
                                     1,   2,        3,    4,   5,  6,  7, 8, 9};
  for (int64_t i = 0; i < 18; ++i) keys[i] = values[static_cast<size_t>(i)];
  Fp8Pages pages(Array({2, 2, 2, 3}));
  round_keys(ctx_, keys, pages.rows(), Array::integers({3, -1, 0}));
  const std::vector<float> rounded = {448, -1, 0.3125f, 896, 16, -1};
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(keys[i], rounded[static_cast<size_t>(i)]) << i;
  for (int64_t i = 6; i < 9; ++i) EXPECT_EQ(keys[i], 0) << i;
  // Slot 3 is the second of page 1.
  EXPECT_EQ(pages.scales[1 * 4 + 0 * 2 + 1], tensor::f32_to_bf16(1));
  EXPECT_EQ(pages.scales[1 * 4 + 1 * 2 + 1], tensor::f32_to_bf16(2));
  EXPECT_EQ(pages.bytes[3 * 6], 0x7E);
  EXPECT_EQ(pages.bytes[3 * 6 + 3], 0x7E);
  EXPECT_EQ(pages.scales[0 * 4 + 0 * 2 + 1], 0x7FC0) << "slot 1 is not written";
  EXPECT_EQ(pages.bytes[6], tensor::kF8E4M3Nan);
  EXPECT_NE(pages.bytes[0], tensor::kF8E4M3Nan);
}

TEST_P(CachedRows, ANanOrInfinityMakesItsGroupNan) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    Array keys = Array::random({1, 2, 4}, 1);
    keys[1] = bad;
    round_keys(ctx_, keys, {}, {});
    for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(std::isnan(keys[i]), i < 4) << i;
  }
}

// Attention over FP8 pages, written in chunks, equals attention over packed rounded rows.
TEST_P(CachedRows, AttentionOverPagesReadsTheRoundedValues) {
  for (const auto& c : cases::attention_values()) {
    const Problem p(c);
    Array k = p.k.clone(), v = p.v.clone();
    round_keys(ctx_, k, {}, {});
    round_keys(ctx_, v, {}, {});
    EXPECT_FALSE(same_bits(k, p.k));
    Array expected = p.output();
    attention_forward(ctx_, expected, {}, p.q, k, v, p.packed(), p.scale);
    for (const int64_t page_tokens : {1, 16}) {
      Pages plain(p, page_tokens);
      Fp8Pages k_pages(plain.k), v_pages(plain.v);
      std::vector<int32_t> begin, end;
      for (const int32_t length : c.lengths) {
        begin.push_back(0);
        end.push_back(length);
      }
      const Chunk all(p, plain, begin, end);
      Array own_k = p.k.clone(), own_v = p.v.clone(), out = p.output();
      round_keys(ctx_, own_k, k_pages.rows(), Array::integers(all.slots));
      round_keys(ctx_, own_v, v_pages.rows(), Array::integers(all.slots));
      EXPECT_TRUE(same_bits(own_k, k)) << "writing pages changes no value";
      attention_forward(ctx_, out, {}, p.q, k_pages.rows(), v_pages.rows(),
                        {all.cu, all.context, plain.table, page_tokens}, p.scale);
      EXPECT_TRUE(same_bits(out, expected)) << c.dim << " wide heads, pages of " << page_tokens;
    }
  }
}

TEST_P(CachedRows, LatentAttentionOverPagesReadsTheRoundedValues) {
  for (const auto& [rank, width] : {std::pair<int64_t, int64_t>{192, 16}, {24, 8}, {128, 64}}) {
    const int64_t tokens = 37, heads = 3;
    Array rows = Array::random({tokens, rank + width}, 3);
    const Array q = Array::random({tokens, heads, rank + width}, 4);
    Array rounded = rows.clone();
    round_latent_rows(ctx_, rounded, rank, {}, {});
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t i = rank; i < rank + width; ++i)
        ASSERT_EQ(rounded[t * (rank + width) + i], rows[t * (rank + width) + i]);
    Array expected({tokens, heads, rank}), out({tokens, heads, rank});
    const std::vector<int32_t> cu = {0, 37}, context = {0};
    const Tensor keys = rounded.view().split_last({1, rank + width});
    attention_forward(ctx_, expected, {}, q, keys, keys, {cu, {}, {}, 0}, 0.1f);
    LatentPages pages(10, 4, rank, width);
    std::vector<int32_t> slots, table;
    for (int32_t page = 9; page >= 0; --page) table.push_back(page);
    for (int32_t t = 0; t < tokens; ++t) slots.push_back((9 - t / 4) * 4 + t % 4);
    round_latent_rows(ctx_, rows, rank, pages.rows(), Array::integers(slots));
    EXPECT_TRUE(same_bits(rows, rounded));
    const Tensor page_table(table.data(), DType::kI32, {}, {1, 10});
    attention_forward(ctx_, out, {}, q, pages.rows(), pages.rows(), {cu, context, page_table, 4},
                      0.1f);
    EXPECT_TRUE(same_bits(out, expected)) << rank << " + " << width;
  }
}

TEST_P(CachedRows, IndexScoresOverPagesReadTheRoundedValues) {
  const int64_t tokens = 70, heads = 3, dim = 24;
  const Array q = Array::random({tokens, heads, dim}, 1), w = Array::random({tokens, heads}, 2);
  Array keys = Array::random({tokens, 1, dim}, 3), rounded = keys.clone();
  round_keys(ctx_, rounded, {}, {});
  Array expected({tokens, 80}), scores({tokens, 80});
  expected.fill(7), scores.fill(7);
  const std::vector<int32_t> cu = {0, 70}, context = {0};
  index_scores(ctx_, expected, q, w, rounded, {cu, {}, {}, 0}, 0, 0, 0.3f);
  Fp8Pages pages(Array({5, 16, 1, dim}));
  std::vector<int32_t> slots, table = {4, 1, 3, 0, 2};
  for (int32_t t = 0; t < tokens; ++t)
    slots.push_back(table[static_cast<size_t>(t / 16)] * 16 + t % 16);
  round_keys(ctx_, keys, pages.rows(), Array::integers(slots));
  const Tensor page_table(table.data(), DType::kI32, {}, {1, 5});
  index_scores(ctx_, scores, q, w, pages.rows(), {cu, context, page_table, 16}, 0, 0, 0.3f);
  EXPECT_TRUE(same_bits(scores, expected));
}

// The fused steps before attention round as the separate ones do.
TEST_P(CachedRows, FusedStepsRoundAlike) {
  const QkvHeads heads{4, 2, 16};
  const int64_t q = 64, kv = 32, width = q + 2 * kv;
  const Array cos = Array::random({50, 8}, 8), sin = Array::random({50, 8}, 9);
  const RotaryTable table{cos, sin, RotaryStyle::kHalfSplit};
  const Array positions = Array::integers({3, 40, 0}), slots = Array::integers({2, -1, 0});
  const Array q_norm = Array::random({16}, 2), k_norm = Array::random({16}, 3);
  const Array raw = Array::random({3, width}, 1);
  Array plain_in = raw.clone(), plain({3, width});
  qk_norm_rotary_forward(ctx_, plain, plain_in, q_norm, k_norm, 1e-5f, table, positions, {}, heads);
  round_keys(ctx_, plain.view().columns(q, q + kv).split_last({2, 16}), {}, {});
  round_keys(ctx_, plain.view().columns(q + kv, width).split_last({2, 16}), {}, {});
  Array in = raw.clone(), out({3, width});
  qk_norm_rotary_forward(ctx_, out, in, q_norm, k_norm, 1e-5f, table, positions, {.is_fp8 = true},
                         heads);
  EXPECT_TRUE(same_bits(out, plain));
  EXPECT_TRUE(same_bits(in, raw)) << "values are rounded in the output only";
  // Without values in the output they are rounded in the input.
  Array narrow({3, q + kv});
  Fp8Pages k_pages(Array({1, 3, 2, 16})), v_pages(Array({1, 3, 2, 16}));
  qk_norm_rotary_forward(ctx_, narrow, in, q_norm, k_norm, 1e-5f, table, positions,
                         {k_pages.rows(), v_pages.rows(), slots, true}, heads);
  EXPECT_TRUE(same_bits(narrow, plain.view().columns(0, q + kv)));
  EXPECT_TRUE(same_bits(in.view().columns(q + kv, width), plain.view().columns(q + kv, width)));
  EXPECT_EQ(v_pages.scales[0 * 6 + 0 * 3 + 1], 0x7FC0) << "slot 1 is not written";
  for (const int64_t slot : {0, 2}) {
    const int64_t token = slot == 0 ? 2 : 0;
    for (int64_t i = 0; i < kv; ++i) {
      const auto at = static_cast<size_t>(i / 16 * 3 + slot);
      EXPECT_EQ(tensor::f8_e4m3_to_f32(v_pages.bytes[static_cast<size_t>(slot * kv + i)]) *
                    tensor::bf16_to_f32(v_pages.scales[at]),
                plain[token * width + q + kv + i])
          << "slot " << slot << ", element " << i;
    }
  }
}

}  // namespace
}  // namespace slimexx::ops::testing
