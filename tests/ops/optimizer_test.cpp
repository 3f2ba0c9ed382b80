#include "ops/option_cases.h"

#include <limits>

#include "cpu_context.h"
#include "ops/testing.h"
#include "slimexx/ops/optimizer.h"

namespace slimexx::ops::testing {
namespace {

SLX_OPS_SUITE(Optimizer);

TEST_P(Optimizer, AdamWAgreesWithDoubles) {
  for (int64_t n : {1, 16, 100, 20000}) {
    Array p = Array::random({n}, 1), m({n}), v({n}), bf16({n}, DType::kBF16);
    std::vector<double> pd = doubles(p), md(pd.size()), vd(pd.size());
    AdamWStep step = cases::kAdamWStep;
    for (step.step = 1; step.step <= 5; ++step.step) {
      const Array g = Array::random({n}, 100 + static_cast<uint64_t>(step.step));
      adamw(ctx_, bf16, p, m, v, g, step);
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

Array rounded(const Array& x) {
  Array y({x.size()}, DType::kBF16);
  for (int64_t i = 0; i < x.size(); ++i) y.view().data<uint16_t>()[i] = tensor::f32_to_bf16(x[i]);
  return y;
}

// bf16 moments: each step is the f32 step on the widened moments, with the same bits in masters and
// weights; the moments are stored rounded to nearest even.
TEST_P(Optimizer, Bf16MomentsAreTheF32StepRounded) {
  for (int64_t n : {1, 15, 1023, 1025, 30001}) {
    Array p = Array::random({n}, 1), weights({n}, DType::kBF16), expected_weights = weights.clone();
    Array m({n}, DType::kBF16), v({n}, DType::kBF16), expected = p.clone();
    AdamWStep step = cases::kAdamWStep;
    int64_t inexact = 0;
    for (step.step = 1; step.step <= 4; ++step.step) {
      const Array g = Array::random({n}, 100 + static_cast<uint64_t>(step.step));
      const Array wide_m = widened(m), wide_v = widened(v);
      adamw(ctx_, expected_weights, expected, wide_m, wide_v, g, step);
      adamw(ctx_, weights, p, m, v, g, step);
      const Array kept_m = widened(m), kept_v = widened(v);
      EXPECT_TRUE(same_bits(p, expected)) << n << ", step " << step.step;
      EXPECT_TRUE(same_bits(widened(weights), widened(expected_weights)))
          << n << ", step " << step.step;
      EXPECT_TRUE(same_bits(kept_m, widened(rounded(wide_m)))) << n << ", step " << step.step;
      EXPECT_TRUE(same_bits(kept_v, widened(rounded(wide_v)))) << n << ", step " << step.step;
      for (int64_t i = 0; i < n; ++i) inexact += kept_m[i] != wide_m[i] ? 1 : 0;
    }
    EXPECT_GT(inexact, n) << "nothing was rounded";
  }
}

// Ties that round in either direction: (1 - beta1) g lies halfway between two bf16 numbers.
TEST_P(Optimizer, Bf16MomentsRoundTiesToEven) {
  Array p({2}), m({2}, DType::kBF16), v({2}, DType::kBF16);
  const Array g = Array::of({2 + 0x1p-7f, 2 + 0x1.8p-6f}, {2});
  adamw(ctx_, p, p, m, v, g,
        {.lr = 0,
         .beta1 = 0.5f,
         .beta2 = 0.5f,
         .eps = 1,
         .weight_decay = 0,
         .step = 1,
         .gradient_scale = 1});
  EXPECT_EQ(widened(m)[0], 1.0f);            // rounded from 1 + 2^-8
  EXPECT_EQ(widened(m)[1], 1.0f + 0x1p-6f);  // rounded from 1 + 3 * 2^-8
}

TEST(OptimizerDeathTest, MomentsAreOfOneType) {
  const Array p({8}), m({8}), v({8}, DType::kBF16), f16({8}, DType::kF16);
  AdamWStep step{};
  step.step = 1;
  EXPECT_DEATH(adamw(cpu_context(), p, p, m, v, p, step),
               "adamw: exp_avg_sq is .8. BF16, expected");
  EXPECT_DEATH(adamw(cpu_context(), p, p, v, m, p, step), "adamw: exp_avg_sq is .8. F32, expected");
  EXPECT_DEATH(adamw(cpu_context(), p, p, f16, f16, p, step),
               "adamw: exp_avg is .8. F16, expected");
}

// Three pieces of weights and gradients, whose state is stored back to back.
TEST_P(Optimizer, PiecesOfALongerArray) {
  constexpr int64_t n = 5000;
  const std::vector<ElementRange> pieces{{16, 1040}, {2000, 2007}, {3008, 4976}};
  AdamWStep step = cases::kAdamWStep;
  step.step = 3;
  const Array g = Array::random({n}, 4), start = Array::random({n}, 1);
  const Array p = start.clone(), m = Array::random({n}, 2), v = Array::random({n}, 3, 0.01, 0.3);
  const Array w = start.clone();
  int64_t held = 0;
  for (const ElementRange& r : pieces) held += r.end - r.begin;
  const Array own_p({held}), own_m({held}), own_v({held});
  std::vector<DecayRange> ranges;
  double squares = 0;
  int64_t at = 0;
  for (const ElementRange& r : pieces) {
    const int64_t length = r.end - r.begin;
    ranges.push_back({at, at + length, step.weight_decay, r.begin - at});
    for (const auto& [own, all] : {std::pair{own_p, p}, {own_m, m}, {own_v, v}})
      std::copy_n(all.view().f32() + r.begin, length, own.view().f32() + at);
    squares += sum_of_squares(ctx_, g.view().rows(r.begin, r.end));
    at += length;
  }
  adamw_ranges(ctx_, w, own_p, own_m, own_v, g, ranges, step);
  adamw(ctx_, p, p, m, v, g, step);
  Array expected = start.clone();
  for (const DecayRange& r : ranges) {
    for (int64_t i = r.begin; i < r.end; ++i) {
      EXPECT_EQ(own_p[i], p[i + r.shift]) << i;
      EXPECT_EQ(own_m[i], m[i + r.shift]) << i;
      EXPECT_EQ(own_v[i], v[i + r.shift]) << i;
      expected[i + r.shift] = p[i + r.shift];
    }
  }
  EXPECT_TRUE(same_bits(w, expected));
  EXPECT_EQ(sum_of_squares_of_ranges(ctx_, g, pieces), squares);
  EXPECT_EQ(sum_of_squares_of_ranges(ctx_, g, {}), 0);
}

TEST(OptimizerDeathTest, PiecesLieInsideTheArray) {
  const Array g({100}), p({20}), m({20}), v({20});
  AdamWStep step{};
  step.step = 1;
  for (const int64_t shift : {-1, 81}) {
    const DecayRange range{.begin = 0, .end = 20, .weight_decay = 0, .shift = shift};
    EXPECT_DEATH(adamw_ranges(cpu_context(), g, p, m, v, g, {&range, 1}, step),
                 "range .0, 20., shifted by .* exceeds 100");
  }
  const ElementRange range{.begin = 50, .end = 101};
  EXPECT_DEATH(sum_of_squares_of_ranges(cpu_context(), g, {&range, 1}),
               "range .50, 101. exceeds 100");
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
  for (const DType moments : {DType::kF32, DType::kBF16}) {
    expect_same_for_any_threads([&] {
      Array p = Array::random({30000}, 1), m = Array::random({30000}, 2), v({30000});
      v.fill(0.3f);
      if (moments == DType::kBF16) m = rounded(m), v = rounded(v);
      Array p2 = p.clone(), m2 = m.clone(), v2 = v.clone();
      adamw(ctx_, p, p, m, v, g, step);
      for (const ElementRange range : {ElementRange{0, 12345}, ElementRange{12345, 30000}}) {
        const auto part = [&](const Array& x) { return x.view().rows(range.begin, range.end); };
        adamw(ctx_, part(p2), part(p2), part(m2), part(v2), part(g), step);
      }
      EXPECT_TRUE(same_bits(p2, p));
      if (moments == DType::kBF16) {
        m = widened(m), v = widened(v), m2 = widened(m2), v2 = widened(v2);
      }
      EXPECT_TRUE(same_bits(m2, m));
      EXPECT_TRUE(same_bits(v2, v));
      return std::vector<Array>{p, m, v};
    });
  }
}

TEST_P(Optimizer, SumOfSquares) {
  for (int64_t n : {0, 1, 4095, 4096, 4097, 50000}) {
    const Array x = Array::random({n}, 1);
    double expected = 0.0;
    for (int64_t i = 0; i < n; ++i) expected += double{x[i]} * x[i];
    const int before = num_threads();
    set_num_threads(1);
    const double one = sum_of_squares(ctx_, x);
    set_num_threads(3);
    EXPECT_EQ(sum_of_squares(ctx_, x), one) << n;
    set_num_threads(before);
    EXPECT_NEAR(one, expected, 1e-12 * expected) << n;
  }
  Array x = Array::random({10000}, 1);
  x[7777] = std::nanf("");
  EXPECT_TRUE(std::isnan(sum_of_squares(ctx_, x)));
  x[7777] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isinf(sum_of_squares(ctx_, x)));
}

}  // namespace
}  // namespace slimexx::ops::testing
