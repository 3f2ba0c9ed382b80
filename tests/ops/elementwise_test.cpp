#include "slimexx/ops/elementwise.h"
#include "ops/op_cases.h"
#include "ops/testing.h"
#include "slimexx/ops/embedding.h"

namespace slimexx::ops::testing {
namespace {

SLX_OPS_SUITE(Elementwise);

std::vector<double> reference_swiglu(const std::vector<double>& gate_up, int64_t f) {
  const auto width = static_cast<size_t>(f);
  std::vector<double> h;
  for (size_t row = 0; row < gate_up.size(); row += 2 * width)
    for (size_t i = 0; i < width; ++i) {
      const double g = gate_up[row + i];
      h.push_back(g / (1.0 + std::exp(-g)) * gate_up[row + width + i]);
    }
  return h;
}

TEST_P(Elementwise, SwigluAgreesWithDoubles) {
  for (const auto& c : cases::swiglu_values()) {
    const Array gate_up = Array::random({c.rows, 2 * c.columns}, 1, 3.0),
                dh = Array::random({c.rows, c.columns}, 2);
    Array h({c.rows, c.columns}), dgate_up({c.rows, 2 * c.columns});
    swiglu_forward(ctx_, h, gate_up);
    EXPECT_TRUE(close(h, reference_swiglu(doubles(gate_up), c.columns), 1e-6, 1e-7));
    swiglu_backward(ctx_, dgate_up, {}, dh, gate_up);
    const auto f = [&](const auto& v) { return reference_swiglu(v, c.columns); };
    EXPECT_TRUE(close(dgate_up, numeric_gradient(doubles(gate_up), doubles(dh), f), 1e-4, 1e-5));
    const Array in_place = gate_up.clone(), again = dh.clone();
    swiglu_backward(ctx_, in_place, again, again, in_place);
    EXPECT_TRUE(same_bits(in_place, dgate_up));
    EXPECT_TRUE(same_bits(again, h)) << "h in the memory of dh";
  }
}

TEST_P(Elementwise, SwigluAtTheEnds) {
  const Array gate_up = Array::of({-200.0f, 200.0f, -90.0f, 0.0f, 2.0f, 3.0f, 5.0f, 7.0f}, {1, 8});
  Array h({1, 4});
  swiglu_forward(ctx_, h, gate_up);
  EXPECT_EQ(h[0], 0.0f);
  EXPECT_EQ(h[1], 600.0f);
  EXPECT_NEAR(h[2], 0.0f, 1e-30f);
  EXPECT_EQ(h[3], 0.0f);
}

TEST_P(Elementwise, SwigluRowAloneHasTheBitsOfTheBatch) {
  const Array gate_up = Array::random({20, 2 * 77}, 1);
  Array h({20, 77});
  swiglu_forward(ctx_, h, gate_up);
  for (int64_t t = 0; t < 20; ++t) {
    Array alone({1, 77});
    swiglu_forward(ctx_, alone, gate_up.view().rows(t, t + 1));
    EXPECT_TRUE(same_bits(alone, h.view().rows(t, t + 1))) << t;
  }
  // An element's bits do not depend on its column: lanes and remainders run the same arithmetic.
  Array shifted({1, 2 * 5}), few({1, 5});
  for (int64_t i = 0; i < 5; ++i) {
    shifted[i] = gate_up[72 + i];
    shifted[5 + i] = gate_up[77 + 72 + i];
  }
  swiglu_forward(ctx_, few, shifted);
  EXPECT_TRUE(same_bits(few, h.view().rows(0, 1).columns(72, 77)));
}

TEST_P(Elementwise, SumsAndScales) {
  const Array a = Array::random({3, 37}, 1), b = Array::random({3, 37}, 2);
  Array y({3, 37});
  add(ctx_, y, a, b);
  for (int64_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], a[i] + b[i]);
  Array in_place = a.clone();
  add(ctx_, in_place, in_place, b);
  EXPECT_TRUE(same_bits(in_place, y));
  add_scaled(ctx_, y, a, -0.5f);
  for (int64_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], a[i] + b[i] + -0.5f * a[i]);
  Array scaled = a.clone();
  scale(ctx_, scaled, 3.0f);
  for (int64_t i = 0; i < y.size(); ++i) EXPECT_EQ(scaled[i], a[i] * 3.0f);
  fill_zero(ctx_, scaled);
  for (int64_t i = 0; i < y.size(); ++i) EXPECT_EQ(scaled[i], 0.0f);
}

TEST_P(Elementwise, CopyConverts) {
  const Array x = Array::random({2, 5}, 1);
  Array bf16({2, 5}, DType::kBF16), back({2, 5}), same({2, 5});
  copy(ctx_, bf16, x);
  copy(ctx_, back, bf16);
  copy(ctx_, same, x);
  EXPECT_TRUE(same_bits(same, x));
  for (int64_t i = 0; i < x.size(); ++i)
    EXPECT_EQ(back[i], tensor::bf16_to_f32(tensor::f32_to_bf16(x[i]))) << i;
}

TEST_P(Elementwise, RowsGatherAndScatter) {
  const Array x = Array::random({6, 300}, 1), rows = Array::integers({5, 0, 5, 2});
  Array y({4, 300});
  gather_rows(ctx_, y, x, rows);
  for (int64_t i = 0; i < 4; ++i)
    EXPECT_TRUE(same_bits(y.view().rows(i, i + 1),
                          x.view().rows(rows.view().i32()[i], rows.view().i32()[i] + 1)));
  expect_same_for_any_threads([&] {
    Array dx = Array::random({6, 300}, 3);
    const Array before = dx.clone();
    scatter_add_rows(ctx_, dx, y, rows);
    for (int64_t h = 0; h < 300; ++h) {
      EXPECT_EQ(dx[5 * 300 + h], (before[5 * 300 + h] + y[h]) + y[2 * 300 + h]) << h;
      EXPECT_EQ(dx[1 * 300 + h], before[1 * 300 + h]) << h;
    }
    return std::vector<Array>{dx};
  });
}

TEST_P(Elementwise, ElementsGather) {
  const Array x = Array::random({2, 3}, 1), ids = Array::integers({7, 11, 13, 17, 19, 23});
  const Array indices = Array::integers({5, 0, 5, 2});
  Array y({4, 1});
  const Array gathered = Array::integers({0, 0, 0, 0});
  gather_elements(ctx_, y, x, indices);
  gather_elements(ctx_, gathered, ids, indices);
  for (int64_t i = 0; i < 4; ++i) {
    const int32_t from = indices.view().i32()[i];
    EXPECT_EQ(y[i], x[from]) << i;
    EXPECT_EQ(gathered.view().i32()[i], ids.view().i32()[from]) << i;
  }
}

TEST_P(Elementwise, EmbeddingAndItsTranspose) {
  const Array table = Array::random({10, 33}, 1), tokens = Array::integers({3, 9, 3, 0, 3});
  Array y({5, 33}), dtable({10, 33});
  embedding_forward(ctx_, y, table, tokens);
  for (int64_t t = 0; t < 5; ++t)
    for (int64_t h = 0; h < 33; ++h)
      EXPECT_EQ(y[t * 33 + h], table[tokens.view().i32()[t] * 33 + h]);
  embedding_backward(ctx_, dtable, y, tokens);
  for (int64_t h = 0; h < 33; ++h) {
    EXPECT_EQ(dtable[3 * 33 + h], table[3 * 33 + h] + table[3 * 33 + h] + table[3 * 33 + h]);
    EXPECT_EQ(dtable[5 * 33 + h], 0.0f);
  }
}

TEST_P(Elementwise, EmbeddingOfAShardIsZeroElsewhere) {
  const Array shard = Array::random({4, 33}, 1), tokens = Array::integers({3, 9, 5, 6, 0, 7, 2});
  Array y = Array::random({7, 33}, 2);
  embedding_shard_forward(ctx_, y, shard, tokens, 3);  // tokens 3 to 6
  for (int64_t t = 0; t < 7; ++t) {
    const int64_t row = tokens.view().i32()[t] - 3;
    for (int64_t h = 0; h < 33; ++h)
      EXPECT_EQ(y[t * 33 + h], row >= 0 && row < 4 ? shard[row * 33 + h] : 0.0f) << t << ", " << h;
  }
}

}  // namespace
}  // namespace slimexx::ops::testing
