// Tests the exp of the inner loops: its accuracy over the whole range, and equal results in all
// lanes.
#include "ops/testing.h"

#include <bit>
#include <limits>

namespace slimexx::ops::testing {
namespace {

SLX_OPS_SUITE(VectorMath);

double ulps(float got, double exact) {
  const float nearest = static_cast<float>(exact);
  const float next = std::nextafter(nearest, std::numeric_limits<float>::infinity());
  return std::abs(got - exact) / (static_cast<double>(next) - nearest);
}

TEST_P(VectorMath, ExpIsWithinTwoUlps) {
  double worst = 0.0;
  std::vector<float> x, y(4096);
  for (double v = -104.0; v < 88.7;) {
    x.clear();
    for (; x.size() < y.size() && v < 88.7; v += 0.00037) x.push_back(static_cast<float>(v));
    GetParam()->exp_shifted(y.data(), x.data(), static_cast<int64_t>(x.size()), 0.0f);
    for (size_t i = 0; i < x.size(); ++i) {
      const double exact = std::exp(static_cast<double>(x[i]));
      if (ulps(y[i], exact) > worst) worst = ulps(y[i], exact);
      ASSERT_LE(ulps(y[i], exact), 2.0)
          << "exp(" << x[i] << ") = " << y[i] << ", expected " << exact;
    }
  }
  RecordProperty("worst_ulps", std::to_string(worst));
}

TEST_P(VectorMath, ExpAtTheEnds) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> x{-inf, inf, 0.0f, -0.0f, -1000.0f, 1000.0f, std::nanf(""), 88.8f};
  std::vector<float> y(x.size());
  GetParam()->exp_shifted(y.data(), x.data(), static_cast<int64_t>(x.size()), 0.0f);
  EXPECT_EQ(y[0], 0.0f);
  EXPECT_EQ(y[1], inf);
  EXPECT_EQ(y[2], 1.0f);
  EXPECT_EQ(y[3], 1.0f);
  EXPECT_EQ(y[4], 0.0f);
  EXPECT_EQ(y[5], inf);
  EXPECT_TRUE(std::isnan(y[6]));
  EXPECT_EQ(y[7], inf);
}

TEST_P(VectorMath, LanesDoNotMatter) {
  const Array x = Array::random({100}, 1, 10.0);
  std::vector<float> all(100);
  GetParam()->exp_shifted(all.data(), x.view().f32(), 100, 1.0f);
  for (int64_t i = 0; i < 100; ++i) {
    float one = 0.0f;
    GetParam()->exp_shifted(&one, x.view().f32() + i, 1, 1.0f);
    EXPECT_EQ(one, all[static_cast<size_t>(i)]) << i;
  }
}

TEST_P(VectorMath, SumsUseTheFixedTree) {
  for (int64_t n : {1, 15, 16, 17, 64, 65, 127, 1000}) {
    const Array x = Array::random({n}, 1), y = Array::random({n}, 2);
    const bool fused = std::string(GetParam()->name) != "generic";
    float partial[64] = {};
    for (int64_t i = 0; i < n; ++i) {
      float& p = partial[i % 64];
      p = fused ? std::fma(x[i], y[i], p) : x[i] * y[i] + p;
    }
    float lanes[16];
    for (int l = 0; l < 16; ++l)
      lanes[l] = (partial[l] + partial[16 + l]) + (partial[32 + l] + partial[48 + l]);
    for (int width = 8; width > 0; width /= 2)
      for (int l = 0; l < width; ++l) lanes[l] += lanes[l + width];
    EXPECT_EQ(GetParam()->dot(x.view().f32(), y.view().f32(), n), lanes[0]) << n;
  }
}

// Every kind of value: ties, values that round up to the next power or to infinity, NaN.
TEST_P(VectorMath, Bf16WidensAndRoundsAsOneByOne) {
  std::vector<float> x;
  for (uint32_t high = 0; high < 0x10000u; ++high)
    for (const uint32_t low : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu})
      x.push_back(std::bit_cast<float>(high << 16 | low));
  std::vector<uint16_t> narrow(x.size());
  GetParam()->round_to_bf16(narrow.data(), x.data(), std::ssize(x));
  std::vector<float> wide(x.size());
  GetParam()->widen_bf16(wide.data(), narrow.data(), std::ssize(x));
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(narrow[i], tensor::f32_to_bf16(x[i])) << std::bit_cast<uint32_t>(x[i]);
    ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), uint32_t{narrow[i]} << 16) << i;
  }
}

}  // namespace
}  // namespace slimexx::ops::testing
