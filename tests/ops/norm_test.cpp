#include "slimexx/ops/norm.h"
#include "ops/op_cases.h"
#include "ops/testing.h"

namespace slimexx::ops::testing {
namespace {

SLX_OPS_SUITE(Norm);

constexpr float kEps = 1e-5f;

std::vector<double> reference_forward(const std::vector<double>& x, const std::vector<double>& w) {
  std::vector<double> y(x.size());
  for (size_t row = 0; row < x.size(); row += w.size()) {
    double sum = 0.0;
    for (size_t i = 0; i < w.size(); ++i) sum += x[row + i] * x[row + i];
    const double r =
        1.0 / std::sqrt(sum / static_cast<double>(w.size()) + static_cast<double>(kEps));
    for (size_t i = 0; i < w.size(); ++i) y[row + i] = w[i] * x[row + i] * r;
  }
  return y;
}

Array make(const cases::NormCase& c, uint64_t seed) {
  return c.heads > 0 ? Array::random({c.tokens, c.heads, c.size}, seed)
                     : Array::random({c.tokens, c.size}, seed);
}

void forward(const Context& s, const cases::NormCase& c, tensor::Tensor y, tensor::Tensor x,
             tensor::Tensor w) {
  c.heads > 0 ? head_norm_forward(s, y, x, w, kEps) : rms_norm_forward(s, y, x, w, kEps);
}

void backward(const Context& s, const cases::NormCase& c, tensor::Tensor dx, tensor::Tensor dw,
              tensor::Tensor dy, tensor::Tensor x, tensor::Tensor w) {
  c.heads > 0 ? head_norm_backward(s, dx, dw, dy, x, w, kEps)
              : rms_norm_backward(s, dx, dw, dy, x, w, kEps, false);
}

TEST_P(Norm, ForwardAgreesWithDoubles) {
  for (const auto& c : cases::norm_values()) {
    Array x = make(c, 1), y = make(c, 9);
    const Array w = Array::random({c.size}, 2, 0.3, 1.0);
    forward(ctx_, c, y, x, w);
    EXPECT_TRUE(close(y, reference_forward(doubles(x), doubles(w)), 1e-6, 1e-7)) << c.size;
    forward(ctx_, c, x, x, w);
    EXPECT_TRUE(same_bits(x, y)) << "in place";
  }
}

TEST_P(Norm, GradientsAgreeWithDifferences) {
  for (const auto& c : cases::norm_gradients()) {
    const Array x = make(c, 1), dy = make(c, 3);
    const Array w = Array::random({c.size}, 2, 0.3, 1.0);
    Array dx = make(c, 4), dw({c.size});
    backward(ctx_, c, dx, dw, dy, x, w);
    const auto xd = doubles(x), wd = doubles(w), weights = doubles(dy);
    EXPECT_TRUE(close(
        dx, numeric_gradient(xd, weights, [&](const auto& v) { return reference_forward(v, wd); }),
        1e-4, 1e-5));
    EXPECT_TRUE(close(
        dw, numeric_gradient(wd, weights, [&](const auto& v) { return reference_forward(xd, v); }),
        1e-4, 1e-5));
  }
}

TEST_P(Norm, BackwardAccumulates) {
  const Array x = Array::random({3, 40}, 1), dy = Array::random({3, 40}, 2),
              w = Array::random({40}, 3);
  Array dx({3, 40}), dw({40}), before = Array::random({3, 40}, 5);
  rms_norm_backward(ctx_, dx, dw, dy, x, w, kEps, false);
  Array sum = before.clone();
  rms_norm_backward(ctx_, sum, dw, dy, x, w, kEps, true);
  for (int64_t i = 0; i < sum.size(); ++i) EXPECT_EQ(sum[i], before[i] + dx[i]) << i;
  Array once({40}), in_place = dy.clone();
  rms_norm_backward(ctx_, in_place, once, in_place, x, w, kEps, false);
  EXPECT_TRUE(same_bits(in_place, dx)) << "dx in the memory of dy";
  for (int64_t i = 0; i < 40; ++i) EXPECT_NEAR(dw[i], 2.0f * once[i], 1e-5f) << i;
}

TEST_P(Norm, RowAloneAndStridesAndThreads) {
  const Array w = Array::random({300}, 2), wide = Array::random({9, 700}, 1);
  const tensor::Tensor x = wide.view().columns(100, 400);
  Array y({9, 300});
  rms_norm_forward(ctx_, y, x, w, kEps);
  for (int64_t t = 0; t < 9; ++t) {
    Array alone({1, 300});
    rms_norm_forward(ctx_, alone, x.rows(t, t + 1), w, kEps);
    EXPECT_TRUE(same_bits(alone, y.view().rows(t, t + 1))) << t;
  }
  expect_same_for_any_threads([&] {
    Array out({500, 300}), dx({500, 300}), dw({300});
    const Array in = Array::random({500, 300}, 7), dy = Array::random({500, 300}, 8);
    rms_norm_forward(ctx_, out, in, w, kEps);
    rms_norm_backward(ctx_, dx, dw, dy, in, w, kEps, false);
    return std::vector<Array>{out, dx, dw};
  });
}

// Compares norms of heads inside a fused projection with those of the same vectors as rows.
TEST_P(Norm, HeadsAreRows) {
  const Array fused = Array::random({5, 10 * 64}, 1), w = Array::random({64}, 2);
  const tensor::Tensor x = fused.view().columns(2 * 64, 6 * 64).split_columns(4);
  Array y({5, 4, 64}), rows({20, 64}), expected({20, 64});
  for (int64_t i = 0; i < rows.size(); ++i) rows[i] = at(x, i);
  head_norm_forward(ctx_, y, x, w, kEps);
  rms_norm_forward(ctx_, expected, rows, w, kEps);
  EXPECT_TRUE(same_bits(y.view().reshaped({20, 64}), expected));
}

}  // namespace
}  // namespace slimexx::ops::testing
