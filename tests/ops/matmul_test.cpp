#include "slimexx/ops/matmul.h"
#include "cpu_context.h"
#include "ops/op_cases.h"
#include "ops/testing.h"
#include "slimexx/base/error.h"
#include "slimexx/ops/elementwise.h"

namespace slimexx::ops::testing {
namespace {

SLX_OPS_SUITE(Matmul);

// y[T,N] = x w^T + bias in double.
std::vector<double> reference_forward(const std::vector<double>& x, const std::vector<double>& w,
                                      const std::vector<double>& bias, int64_t t, int64_t n,
                                      int64_t k) {
  std::vector<double> y(static_cast<size_t>(t * n));
  for (int64_t i = 0; i < t; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0.0;
      for (int64_t p = 0; p < k; ++p)
        sum += x[static_cast<size_t>(i * k + p)] * w[static_cast<size_t>(j * k + p)];
      y[static_cast<size_t>(i * n + j)] = sum + (bias.empty() ? 0.0 : bias[static_cast<size_t>(j)]);
    }
  return y;
}

struct Operands {
  Array x, w, bias, y;
  explicit Operands(const cases::MatmulCase& c)
      : x(Array::random({c.tokens, c.inputs}, 1)),
        w(Array::random({c.outputs, c.inputs}, 2)),
        bias(c.bias ? Array::random({c.outputs}, 3) : Array()),
        y({c.tokens, c.outputs}) {
    y.fill(std::nanf(""));
  }
};

TEST_P(Matmul, ForwardAgreesWithDoubles) {
  for (const auto& c : cases::matmul_values()) {
    Operands o(c);
    matmul_forward(ctx_, o.y, o.x, {o.w, o.bias});
    const auto expected = reference_forward(doubles(o.x), doubles(o.w),
                                            c.bias ? doubles(o.bias) : std::vector<double>(),
                                            c.tokens, c.outputs, c.inputs);
    EXPECT_TRUE(close(o.y, expected, 1e-5, 3e-7 * static_cast<double>(c.inputs) + 1e-6))
        << c.tokens << "x" << c.outputs << "x" << c.inputs;
  }
}

// The exact order that N2 states: one chain over ascending k from 0, fused multiply-adds if the
// instruction set has them, bias last.
TEST_P(Matmul, ForwardIsTheStatedChain) {
  const bool fused = std::string(GetParam()->name) != "generic";
  for (const auto& c : cases::matmul_values()) {
    Operands o(c);
    matmul_forward(ctx_, o.y, o.x, {o.w, o.bias});
    Array expected({c.tokens, c.outputs});
    for (int64_t t = 0; t < c.tokens; ++t)
      for (int64_t n = 0; n < c.outputs; ++n) {
        float sum = 0.0f;
        for (int64_t k = 0; k < c.inputs; ++k) {
          const float a = o.x[t * c.inputs + k], b = o.w[n * c.inputs + k];
          sum = fused ? std::fma(a, b, sum) : a * b + sum;
        }
        expected[t * c.outputs + n] = c.bias ? sum + o.bias[n] : sum;
      }
    EXPECT_TRUE(same_bits(o.y, expected)) << c.tokens << "x" << c.outputs << "x" << c.inputs;
  }
}

// A frozen matrix has no gradient, but its bias may have one.
TEST_P(Matmul, WeightGradientsThatAreNotThereChangeNoOther) {
  const Array dy = Array::random({5, 7}, 1), x = Array::random({5, 9}, 2);
  Array dw = Array::random({7, 9}, 3), dbias = Array::random({7}, 4);
  Array alone = Array::random({7}, 4);
  matmul_backward_weight(ctx_, dw, dbias, dy, x);
  matmul_backward_weight(ctx_, {}, alone, dy, x);
  EXPECT_TRUE(same_bits(alone, dbias));
  EXPECT_FALSE(same_bits(alone, Array::random({7}, 4)));
  matmul_backward_weight(ctx_, {}, {}, dy, x);
}

TEST_P(Matmul, SwigluOfAProductHasTheBitsOfBothOps) {
  for (const auto& c : cases::matmul_values()) {
    const Array x = Array::random({c.tokens, c.inputs}, 1),
                w = Array::random({2 * c.outputs, c.inputs}, 2),
                bias = c.bias ? Array::random({2 * c.outputs}, 3) : Array();
    Array gate_up({c.tokens, 2 * c.outputs}), expected({c.tokens, c.outputs}),
        h({c.tokens, c.outputs});
    matmul_forward(ctx_, gate_up, x, {w, bias});
    swiglu_forward(ctx_, expected, gate_up);
    h.fill(std::nanf(""));
    tensor::Arena plan = tensor::Arena::for_planning({}, "test");
    matmul_swiglu_forward(planning_context(plan), h, x, {w, bias});
    EXPECT_GE(plan.high_water_bytes(), gate_up.view().size_bytes());
    tensor::Arena arena({}, plan.high_water_bytes(), "test");
    matmul_swiglu_forward(compute_context(arena), h, x, {w, bias});
    EXPECT_EQ(arena.used_bytes(), 0);
    EXPECT_TRUE(same_bits(h, expected)) << c.tokens << "x" << c.outputs << "x" << c.inputs;
  }
}

TEST_P(Matmul, RowAloneHasTheBitsOfTheBatch) {
  const cases::MatmulCase c{29, 77, 391, true};
  Operands o(c);
  matmul_forward(ctx_, o.y, o.x, {o.w, o.bias});
  for (int64_t t = 0; t < c.tokens; ++t)
    for (int64_t rows : {int64_t{1}, int64_t{3}}) {
      const int64_t begin = std::min(t, c.tokens - rows);
      Array alone({rows, c.outputs});
      matmul_forward(ctx_, alone, o.x.view().rows(begin, begin + rows), {o.w, o.bias});
      ASSERT_TRUE(same_bits(alone, o.y.view().rows(begin, begin + rows))) << "row " << t;
    }
}

TEST_P(Matmul, StridesChangeNothing) {
  const cases::MatmulCase c{14, 40, 50, true};
  Operands o(c);
  matmul_forward(ctx_, o.y, o.x, {o.w, o.bias});
  Array wide_x({c.tokens, 90}), wide_y({c.tokens, 120});
  wide_y.fill(7.0f);
  const tensor::Tensor x = wide_x.view().columns(20, 70), y = wide_y.view().columns(60, 100);
  for (int64_t t = 0; t < c.tokens; ++t)
    for (int64_t k = 0; k < c.inputs; ++k) x.f32()[t * 90 + k] = o.x[t * c.inputs + k];
  matmul_forward(ctx_, y, x, {o.w, o.bias});
  EXPECT_TRUE(same_bits(y, o.y));
  for (int64_t t = 0; t < c.tokens; ++t)
    for (int64_t n = 0; n < 120; ++n)
      if (n < 60 || n >= 100) {
        ASSERT_EQ(wide_y[t * 120 + n], 7.0f) << "wrote outside its columns: " << t << ", " << n;
      }
}

TEST_P(Matmul, ThreadsChangeNothing) {
  expect_same_for_any_threads([&] {
    Operands o({45, 1500, 300, true});
    matmul_forward(ctx_, o.y, o.x, {o.w, o.bias});
    Array dx({45, 300}), dw({1500, 300}), dbias({1500});
    matmul_backward_input(ctx_, dx, o.y, o.w, false);
    matmul_backward_weight(ctx_, dw, dbias, o.y, o.x);
    return std::vector<Array>{o.y, dx, dw, dbias};
  });
}

TEST_P(Matmul, GradientsAgreeWithDifferences) {
  for (const auto& c : cases::matmul_gradients()) {
    Operands o(c);
    const Array dy = Array::random({c.tokens, c.outputs}, 4);
    const auto x = doubles(o.x), w = doubles(o.w),
               bias = c.bias ? doubles(o.bias) : std::vector<double>();
    Array dx({c.tokens, c.inputs}), dw({c.outputs, c.inputs}),
        dbias = c.bias ? Array({c.outputs}) : Array();
    matmul_backward_input(ctx_, dx, dy, o.w, false);
    matmul_backward_weight(ctx_, dw, dbias, dy, o.x);
    const auto f = [&](const auto& x_, const auto& w_, const auto& b_) {
      return reference_forward(x_, w_, b_, c.tokens, c.outputs, c.inputs);
    };
    EXPECT_TRUE(
        close(dx, numeric_gradient(x, doubles(dy), [&](const auto& v) { return f(v, w, bias); }),
              1e-4, 1e-5));
    EXPECT_TRUE(
        close(dw, numeric_gradient(w, doubles(dy), [&](const auto& v) { return f(x, v, bias); }),
              1e-4, 1e-5));
    if (!c.bias) continue;
    EXPECT_TRUE(
        close(dbias, numeric_gradient(bias, doubles(dy), [&](const auto& v) { return f(x, w, v); }),
              1e-4, 1e-5));
  }
}

TEST_P(Matmul, BackwardAgreesWithDoublesAtEveryRemainder) {
  for (const auto& c : cases::matmul_values()) {
    Operands o(c);
    const Array dy = Array::random({c.tokens, c.outputs}, 4);
    Array dx({c.tokens, c.inputs}), dw({c.outputs, c.inputs}), dbias({c.outputs});
    matmul_backward_input(ctx_, dx, dy, o.w, false);
    matmul_backward_weight(ctx_, dw, dbias, dy, o.x);
    std::vector<double> edx(static_cast<size_t>(dx.size())), edw(static_cast<size_t>(dw.size()));
    for (int64_t t = 0; t < c.tokens; ++t)
      for (int64_t n = 0; n < c.outputs; ++n)
        for (int64_t k = 0; k < c.inputs; ++k) {
          const double d = dy[t * c.outputs + n];
          edx[static_cast<size_t>(t * c.inputs + k)] += d * o.w[n * c.inputs + k];
          edw[static_cast<size_t>(n * c.inputs + k)] += d * o.x[t * c.inputs + k];
        }
    EXPECT_TRUE(close(dx, edx, 1e-5, 3e-7 * static_cast<double>(c.outputs) + 1e-6))
        << c.tokens << " " << c.outputs;
    EXPECT_TRUE(close(dw, edw, 1e-5, 3e-7 * static_cast<double>(c.tokens) + 1e-6))
        << c.tokens << " " << c.outputs;
  }
}

TEST_P(Matmul, BackwardAccumulates) {
  const cases::MatmulCase c{5, 6, 7, true};
  Operands o(c);
  const Array dy = Array::random({5, 6}, 4);
  Array dx({5, 7}), dw({6, 7}), dbias({6});
  matmul_backward_input(ctx_, dx, dy, o.w, false);
  matmul_backward_weight(ctx_, dw, dbias, dy, o.x);
  Array dx2 = dx.clone(), dw2 = dw.clone(), dbias2 = dbias.clone();
  matmul_backward_input(ctx_, dx2, dy, o.w, true);
  matmul_backward_weight(ctx_, dw2, dbias2, dy, o.x);
  for (const auto& [twice, once] : {std::pair{&dx2, &dx}, {&dw2, &dw}, {&dbias2, &dbias}}) {
    std::vector<double> expected = doubles(*once);
    for (double& v : expected) v *= 2.0;
    EXPECT_TRUE(close(*twice, expected, 1e-5, 1e-5));
  }
}

TEST_P(Matmul, NotANumberStaysInItsRow) {
  Operands o({4, 20, 30});
  o.x[2 * 30 + 5] = std::nanf("");
  matmul_forward(ctx_, o.y, o.x, {o.w});
  for (int64_t t = 0; t < 4; ++t)
    for (int64_t n = 0; n < 20; ++n)
      EXPECT_EQ(std::isnan(o.y[t * 20 + n]), t == 2) << t << ", " << n;
}

#ifndef SLX_WITH_CUDA
TEST(MatmulDevice, CudaWithoutCudaSaysSo) {
  uint16_t memory[4] = {};
  const tensor::Device cuda{tensor::DeviceType::kCuda, 0};
  const tensor::Tensor x(memory, DType::kBF16, cuda, {2, 2});
  tensor::Arena none = tensor::Arena::for_planning(cuda, "test");
  try {
    matmul_forward(Context{.stream = {.device = cuda}, .arena = none}, x, x, {x});
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.message(), "this build has no CUDA");
  }
}
#endif

TEST(MatmulDeathTest, WrongShapeIsNamed) {
  const Array x({2, 3}), w({4, 5}), y({2, 4});
  EXPECT_DEATH(matmul_forward(cpu_context(), y, x, {w}),
               "matmul_forward: w is .4, 5. F32, expected");
}

}  // namespace
}  // namespace slimexx::ops::testing
