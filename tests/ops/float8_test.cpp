// FP8 on the CPU: quantised activations and weights, and their products.
#include "slimexx/ops/float8.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "cpu_context.h"
#include "ops/testing.h"
#include "slimexx/io/fp8_conversion.h"
#include "slimexx/ops/matmul.h"

namespace slimexx::ops::testing {
namespace {

using tensor::DType;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// x[T,K] as FP8.
struct Rows {
  explicit Rows(const Array& x)
      : num_rows(x.view().dim(0)),
        columns(x.view().dim(1)),
        bytes(static_cast<size_t>(num_rows * columns)),
        scales({columns / kF8Columns, (num_rows + 3) / 4 * 4}) {
    scales.fill(0);
    quantise_rows(cpu_context(), values(), scales, x);
  }
  Tensor values() { return {bytes.data(), DType::kF8E4M3, {}, {num_rows, columns}}; }
  float scale(int64_t row, int64_t group) const {
    return scales[group * scales.view().dim(1) + row];
  }
  float value(int64_t row, int64_t column) const {
    return tensor::f8_e4m3_to_f32(bytes[static_cast<size_t>(row * columns + column)]);
  }
  int64_t num_rows, columns;
  std::vector<uint8_t> bytes;
  Array scales;
};

// w[R,K], which stacks `copies` matrices, quantised in place.
struct Blocks {
  Blocks(Array plain_in, tensor::F8ScaleRule rule, std::vector<int32_t> units_in = {})
      : plain(std::move(plain_in)),
        rows(plain.view().dim(0)),
        columns(plain.view().dim(1)),
        bytes(static_cast<size_t>(rows * columns)),
        scales({(rows + kF8UnitRows - 1) / kF8UnitRows, columns / kF8Columns}),
        units(std::move(units_in)) {
    if (units.empty()) {
      units.resize(static_cast<size_t>((rows + 127) / 128 * 2), -1);
      for (int32_t u = 0; u < scales.view().dim(0); ++u) units[static_cast<size_t>(u)] = u;
    }
    quantise(rule);
  }
  void quantise(tensor::F8ScaleRule rule) {
    const int64_t before = changed;
    changed = 0;
    quantise_blocks(cpu_context(),
                    {.plain = plain,
                     .values = values(),
                     .rounded = plain,
                     .scales = scales,
                     .units = {units.data(), DType::kI32, {}, {std::ssize(units) / 2, 2}},
                     .rule = rule,
                     .changed = {&changed, DType::kI64, {}, {1}}});
    last_changed = changed;
    changed += before;
  }
  Tensor values() { return {bytes.data(), DType::kF8E4M3, {}, {rows, columns}}; }
  Linear linear(bool has_plain) {
    return {.weight = has_plain ? Tensor(plain) : Tensor{}, .values = values(), .scales = scales};
  }
  Array plain;
  int64_t rows, columns;
  std::vector<uint8_t> bytes;
  Array scales;
  std::vector<int32_t> units;
  int64_t changed = 0, last_changed = 0;
};

constexpr tensor::F8ScaleRule kRules[] = {tensor::F8ScaleRule::kPowerOfTwo,
                                          tensor::F8ScaleRule::kFloat};

TEST(Float8, RowsByHand) {
  Array x({1, 256});
  x.fill(0);
  x[0] = 448;      // scale 1: values are the nearest of e4m3
  x[1] = 17;       // between 16 and 18, ties to even
  x[2] = -0.002f;  // nearest subnormal: 2^-9
  x[128] = 1;      // the other group has a scale of its own
  x[129] = 0.5f;
  const Rows rows(x);
  EXPECT_EQ(rows.scale(0, 0), 1.0f);
  EXPECT_EQ(rows.value(0, 0), 448.0f);
  EXPECT_EQ(rows.value(0, 1), 16.0f);
  EXPECT_EQ(rows.value(0, 2), -0x1p-9f);
  EXPECT_EQ(rows.scale(0, 1), 1.0f / 448);
  EXPECT_EQ(rows.value(0, 128), 448.0f);
  EXPECT_EQ(rows.value(0, 129), 224.0f);
  EXPECT_EQ(rows.value(0, 130), 0.0f);
}

TEST(Float8, RowsOfZerosAndFaults) {
  Array x({4, 128});
  x.fill(0);
  x[128 + 7] = kNan;
  x[256 + 9] = -kInfinity;
  x[384] = 1e-30f;
  const Rows rows(x);
  EXPECT_EQ(rows.scale(0, 0), 1e-10f / 448);
  EXPECT_EQ(rows.value(0, 0), 0.0f);
  EXPECT_TRUE(std::isnan(rows.scale(1, 0)));
  EXPECT_TRUE(std::isnan(rows.scale(2, 0)));
  EXPECT_EQ(rows.scale(3, 0), 1e-10f / 448);
}

// The bytes of convert-hf --to fp8.
TEST(Float8, BlocksAreThoseOfConvertHf) {
  for (const tensor::F8ScaleRule rule : kRules) {
    Array w = Array::random({192, 256}, 3);
    for (int64_t i = 0; i < 192 * 256; ++i) w[i] = tensor::bf16_to_f32(tensor::f32_to_bf16(w[i]));
    std::vector<uint8_t> bytes(192 * 256);
    std::vector<float> scales(4);
    io::quantise_rows({.scale_rule = rule}, w.view().f32(), 192, 256, 0, bytes.data(),
                      scales.data());
    const Blocks own(w, rule);
    EXPECT_EQ(own.bytes, bytes);
    for (int64_t u = 0; u < 3; ++u)
      for (int64_t c = 0; c < 2; ++c)
        EXPECT_EQ(own.scales[u * 2 + c], scales[static_cast<size_t>(u / 2 * 2 + c)]) << u << c;
  }
}

TEST(Float8, QuantisingTwiceChangesNothing) {
  for (const tensor::F8ScaleRule rule : kRules) {
    Blocks b(Array::random({128, 384}, 5), rule);
    EXPECT_GT(b.last_changed, 128 * 384 * 9 / 10);
    const Array first = b.plain;
    const std::vector<uint8_t> bytes = b.bytes;
    b.quantise(rule);
    EXPECT_EQ(b.last_changed, 0);
    EXPECT_EQ(b.bytes, bytes);
    EXPECT_TRUE(same_bits(b.plain, first));
    b.plain[200] = b.plain[200] == 0 ? 1 : -b.plain[200];
    b.quantise(rule);
    EXPECT_EQ(b.last_changed, 1);
  }
}

// Two heads' rows in another order: both units of a block have the block's scale.
TEST(Float8, UnitsOfABlockMayLieApart) {
  const Array w = Array::random({256, 128}, 6);
  Array moved = w;  // rows 0..63, 128..191, 64..127, 192..255
  for (int64_t i = 0; i < 64 * 128; ++i) {
    moved[64 * 128 + i] = w[128 * 128 + i];
    moved[128 * 128 + i] = w[64 * 128 + i];
  }
  const Blocks plain(w, kRules[0]), own(moved, kRules[0], {0, 2, 1, 3});
  for (const auto& [unit, of] : {std::pair{0, 0}, {1, 2}, {2, 1}, {3, 3}}) {
    EXPECT_EQ(own.scales[unit], plain.scales[of]) << unit;
    EXPECT_TRUE(std::equal(own.bytes.begin() + unit * 64 * 128,
                           own.bytes.begin() + (unit + 1) * 64 * 128,
                           plain.bytes.begin() + of * 64 * 128))
        << unit;
  }
}

TEST(Float8, FaultsSpreadOverTheirBlock) {
  Array w = Array::random({128, 256}, 7);
  w[5] = kInfinity;
  const Blocks b(w, kRules[0]);
  EXPECT_TRUE(std::isnan(b.scales[0]));
  EXPECT_TRUE(std::isnan(b.plain[127]));
  EXPECT_TRUE(std::isfinite(b.scales[1]));
  EXPECT_TRUE(std::isfinite(b.plain[128]));
}

// The product of the quantised operands is the plain product of their values.
TEST(Float8, ProductOfTheRoundedOperands) {
  const Array x = Array::random({5, 256}, 8), bias = Array::random({192}, 9);
  Blocks w(Array::random({192, 256}, 10), kRules[1]);
  const Rows rows(x);
  Array rounded({5, 256});
  for (int64_t t = 0; t < 5; ++t)
    for (int64_t k = 0; k < 256; ++k)
      rounded[t * 256 + k] = rows.value(t, k) * rows.scale(t, k / 128);
  Array expected({5, 192}), y({5, 192});
  matmul_forward(cpu_context(), expected, rounded, {w.plain, bias});
  for (const bool has_plain : {true, false}) {
    tensor::Arena plan = tensor::Arena::for_planning({}, "test");
    Linear linear = w.linear(has_plain);
    linear.bias = bias;
    matmul_forward(planning_context(plan), y, x, linear);
    tensor::Arena arena({}, plan.high_water_bytes(), "test");
    y.fill(kNan);
    matmul_forward(compute_context(arena), y, x, linear);
    EXPECT_TRUE(same_bits(y, expected)) << has_plain;
    EXPECT_EQ(arena.high_water_bytes(), plan.high_water_bytes());
    for (int64_t t = 0; t < 5; ++t) {  // a row alone
      Array alone({1, 192});
      matmul_forward(compute_context(arena), alone, x.view().rows(t, t + 1), linear);
      EXPECT_TRUE(same_bits(alone, expected.view().rows(t, t + 1))) << t;
    }
  }
}

TEST(Float8, ExpertsMultiplyTheRoundedOperands) {
  constexpr int64_t kExperts = 3, kRows = 4;
  const Array x = Array::random({kRows, 128}, 11);
  Blocks w(Array::random({kExperts * 64, 128}, 12), kRules[0], {0, -1, 1, -1, 2, -1});
  std::vector<int32_t> ids{2, 0, 2, 1};
  std::vector<int32_t> offsets(kExperts + 1), choices(kRows), tokens(kRows), row_of(kRows);
  const auto view = [](std::vector<int32_t>& v) {
    return Tensor(v.data(), DType::kI32, {}, {std::ssize(v)});
  };
  const RoutedRows routed{view(offsets), view(choices), view(tokens),
                          Tensor(row_of.data(), DType::kI32, {}, {kRows, 1})};
  sort_by_expert(cpu_context(), routed, Tensor(ids.data(), DType::kI32, {}, {kRows, 1}));
  tensor::Arena arena({}, 1 << 20, "test");
  const Context ctx = compute_context(arena);
  Array sorted({kRows, 128}), y({kRows, 64});
  for (int64_t r = 0; r < kRows; ++r)
    std::copy_n(x.view().f32() + tokens[static_cast<size_t>(r)] * 128, 128,
                sorted.view().f32() + r * 128);
  for (const bool has_plain : {true, false}) {
    Linear linear{.values = w.values().reshaped({kExperts, 64, 128}),
                  .scales = w.scales.view().reshaped({kExperts, 1, 1})};
    if (has_plain) linear.weight = w.plain.view().reshaped({kExperts, 64, 128});
    expert_matmul_forward(ctx, y, sorted, linear, routed);
    for (int64_t r = 0; r < kRows; ++r) {
      const int64_t e = ids[static_cast<size_t>(tokens[static_cast<size_t>(r)])];
      Array alone({1, 64});
      matmul_forward(ctx, alone, sorted.view().rows(r, r + 1),
                     {.values = w.values().rows(e * 64, e * 64 + 64),
                      .scales = w.scales.view().rows(e, e + 1)});
      EXPECT_TRUE(same_bits(alone, y.view().rows(r, r + 1))) << r;
    }
  }
}

}  // namespace
}  // namespace slimexx::ops::testing
