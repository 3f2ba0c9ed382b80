#include "ops/testing.h"

namespace slimexx::ops::testing {
namespace {

SLX_OPS_SUITE(Optimizer);

TEST_P(Optimizer, AdamWAgreesWithDoubles) {
  for (int64_t n : {1, 16, 100, 20000}) {
    Array p = Array::random({n}, 1), m({n}), v({n}), bf16({n}, DType::kBF16);
    std::vector<double> pd = doubles(p), md(pd.size()), vd(pd.size());
    AdamWStep step{.lr = 1e-2f,
                   .beta1 = 0.9f,
                   .beta2 = 0.98f,
                   .eps = 1e-8f,
                   .weight_decay = 0.1f,
                   .step = 0,
                   .gradient_scale = 0.5f};
    for (step.step = 1; step.step <= 5; ++step.step) {
      const Array g = Array::random({n}, 100 + static_cast<uint64_t>(step.step));
      adamw(stream_, bf16, p, m, v, g, step);
      for (size_t i = 0; i < pd.size(); ++i) {
        const double gradient = 0.5 * g[static_cast<int64_t>(i)], b1 = step.beta1, b2 = step.beta2,
                     t = static_cast<double>(step.step);
        pd[i] *= 1.0 - double{step.lr} * step.weight_decay;
        md[i] = b1 * md[i] + (1 - b1) * gradient;
        vd[i] = b2 * vd[i] + (1 - b2) * gradient * gradient;
        pd[i] -= step.lr * (md[i] / (1 - std::pow(b1, t))) /
                 (std::sqrt(vd[i] / (1 - std::pow(b2, t))) + double{step.eps});
      }
    }
    EXPECT_TRUE(close(p, pd, 1e-6, 1e-6)) << n;
    EXPECT_TRUE(close(m, md, 1e-5, 1e-7)) << n;
    EXPECT_TRUE(close(v, vd, 1e-5, 1e-9)) << n;
    for (int64_t i = 0; i < n; ++i)
      EXPECT_EQ(bf16.view().data<uint16_t>()[i], tensor::f32_to_bf16(p[i])) << i;
  }
}

// A shard's bits do not depend on where it was cut.
TEST_P(Optimizer, ShardsAndThreadsChangeNothing) {
  const AdamWStep step{.lr = 1e-3f,
                       .beta1 = 0.9f,
                       .beta2 = 0.999f,
                       .eps = 1e-8f,
                       .weight_decay = 0.0f,
                       .step = 3,
                       .gradient_scale = 1.0f};
  const Array g = Array::random({30000}, 4);
  expect_same_for_any_threads([&] {
    Array p = Array::random({30000}, 1), m = Array::random({30000}, 2), v({30000});
    v.fill(0.3f);
    Array p2 = p.clone(), m2 = m.clone(), v2 = v.clone();
    adamw(stream_, p, p, m, v, g, step);
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 12345}, {12345, 30000}}) {
      const auto part = [&](const Array& x) { return x.view().rows(begin, end); };
      adamw(stream_, part(p2), part(p2), part(m2), part(v2), part(g), step);
    }
    EXPECT_TRUE(same_bits(p2, p));
    return std::vector<Array>{p, m, v};
  });
}

TEST_P(Optimizer, SumOfSquares) {
  for (int64_t n : {0, 1, 4095, 4096, 4097, 50000}) {
    const Array x = Array::random({n}, 1);
    double expected = 0.0;
    for (int64_t i = 0; i < n; ++i) expected += double{x[i]} * x[i];
    const int before = num_threads();
    set_num_threads(1);
    const double one = sum_of_squares(stream_, x);
    set_num_threads(3);
    EXPECT_EQ(sum_of_squares(stream_, x), one) << n;
    set_num_threads(before);
    EXPECT_NEAR(one, expected, 1e-12 * expected) << n;
  }
  Array x = Array::random({10000}, 1);
  x[7777] = std::nanf("");
  EXPECT_TRUE(std::isnan(sum_of_squares(stream_, x)));
  x[7777] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isinf(sum_of_squares(stream_, x)));
}

}  // namespace
}  // namespace slimexx::ops::testing
