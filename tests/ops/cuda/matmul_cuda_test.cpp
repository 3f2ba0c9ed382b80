// Compares the matrix products on the device with the CPU's, from the same bf16 values.
#include "cpu_context.h"
#include "ops/cuda/cuda_testing.h"
#include "ops/op_cases.h"
#include "slimexx/ops/elementwise.h"
#include "slimexx/ops/matmul.h"

namespace slimexx::ops::testing {
namespace {

class MatmulCuda : public DeviceTest {};

constexpr uint64_t kSeed = 1;
// Tolerance of f32 sums of exact products, in another order than the CPU's.
constexpr double kSumBound = 2e-5;
// Tolerance of a single bf16 rounding: at most half a step of 2^-7.
constexpr double kRoundingBound = 1.0 / 256 + kSumBound;
// When dx is accumulated, it may be rounded twice.
constexpr double kTwoRoundings = 1e-2;

std::vector<cases::MatmulCase> all_cases() {
  std::vector<cases::MatmulCase> all = cases::matmul_values();
  for (const auto& c : cases::matmul_gradients()) all.push_back(c);
  const std::vector<cases::MatmulCase> of_the_device = {
      {1, 128, 64, true},     {3, 256, 512, true}, {64, 1024, 256}, {65, 264, 136, true},
      {130, 1536, 512, true}, {300, 72, 2048},     {256, 512, 1024}};
  all.insert(all.end(), of_the_device.begin(), of_the_device.end());
  return all;
}

struct Operands {
  Array x, w, bias, dy;
  std::string name;
  explicit Operands(const cases::MatmulCase& c)
      : x(random_bf16({c.tokens, c.inputs}, kSeed)),
        w(random_bf16({c.outputs, c.inputs}, kSeed + 1)),
        bias(c.bias ? random_bf16({c.outputs}, kSeed + 2) : Array()),
        dy(random_bf16({c.tokens, c.outputs}, kSeed + 3)),
        name(std::to_string(c.tokens) + "x" + std::to_string(c.outputs) + "x" +
             std::to_string(c.inputs) + ", seed " + std::to_string(kSeed)) {}
  Array output() const {
    Array y({x.view().dim(0), w.view().dim(0)});
    y.fill(std::nanf(""));
    return y;
  }
};

TEST_F(MatmulCuda, ForwardAgreesWithTheCpuAndIsRoundedOnce) {
  for (const auto& c : all_cases()) {
    const Operands o(c);
    const Array expected = o.output();
    matmul_forward(cpu_context(), expected, o.x, {o.w, o.bias});
    const OnDevice x(o.x), w(o.w), bias(o.bias), f32 = as_is(o.output()), bf16(o.output());
    run_op([&](const Context& s) { matmul_forward(s, f32, x, {w, bias}); });
    run_op([&](const Context& s) { matmul_forward(s, bf16, x, {w, bias}); });
    EXPECT_TRUE(close_by_norm(f32.back(), expected, kSumBound, 1e-6)) << o.name;
    EXPECT_TRUE(same_bits(bf16.back(), rounded(f32.back()))) << o.name;
  }
}

TEST_F(MatmulCuda, RowAloneHasTheBitsOfTheBatch) {
  for (const cases::MatmulCase& c :
       {cases::MatmulCase{29, 77, 391, true}, {29, 80, 392, true}, {200, 256, 512}}) {
    const Operands o(c);
    const OnDevice x(o.x), w(o.w), bias(o.bias), y = as_is(o.output());
    run_op([&](const Context& s) { matmul_forward(s, y, x, {w, bias}); });
    const Array batch = y.back();
    for (int64_t t = 0; t < c.tokens; t += 7)
      for (const int64_t rows : {int64_t{1}, int64_t{3}, int64_t{20}}) {
        const int64_t begin = std::min(t, c.tokens - rows);
        const OnDevice alone = as_is(Array({rows, c.outputs}));
        run_op([&](const Context& s) {
          matmul_forward(s, alone, x.view().rows(begin, begin + rows), {w, bias});
        });
        ASSERT_TRUE(same_bits(alone.back(), batch.view().rows(begin, begin + rows)))
            << o.name << ", " << rows << " rows from " << begin;
      }
  }
}

// Sizes for the fused path and for the path with gate_up in memory; only the latter needs scratch.
TEST_F(MatmulCuda, SwigluOfAProductHasTheBitsOfBothOps) {
  const std::vector<cases::MatmulCase> all = {
      {1, 8, 64},       {5, 40, 128, true}, {64, 320, 192},        {130, 264, 512, true},
      {300, 1032, 256}, {0, 16, 64},        {4000, 640, 64, true}, {7, 20, 64, true},
      {65, 64, 72},     {33, 31, 45, true}};
  for (const auto& c : all) {
    const OnDevice x(random_bf16({c.tokens, c.inputs}, kSeed)),
        w(random_bf16({2 * c.outputs, c.inputs}, kSeed + 1)),
        bias(c.bias ? random_bf16({2 * c.outputs}, kSeed + 2) : Array());
    Array blank({c.tokens, c.outputs});
    blank.fill(std::nanf(""));
    const OnDevice gate_up(Array({c.tokens, 2 * c.outputs})), expected(blank), h(blank);
    run_op([&](const Context& s) { matmul_forward(s, gate_up, x, {w, bias}); });
    run_op([&](const Context& s) { swiglu_forward(s, expected, gate_up); });
    run_op([&](const Context& s) { matmul_swiglu_forward(s, h, x, {w, bias}); });
    const std::string name = std::to_string(c.tokens) + "x" + std::to_string(c.outputs) + "x" +
                             std::to_string(c.inputs) + ", seed " + std::to_string(kSeed);
    EXPECT_TRUE(same_bits(h.back(), expected.back())) << name;
    tensor::Arena plan = tensor::Arena::for_planning(test_device(), "test");
    matmul_swiglu_forward(planning_context(plan), h, x, {w, bias});
    const bool is_fused = c.outputs % 8 == 0 && c.inputs % 64 == 0;
    EXPECT_EQ(plan.high_water_bytes() == 0, is_fused) << name;
  }
}

// Leaves of a row-parallel product: a column range has the bits of the same columns in contiguous
// memory. The cases have few rows or many, for both operand orders, and widths that are multiples
// of a TMA box, of 16 bytes, and of neither.
TEST_F(MatmulCuda, ColumnsOfWiderRowsHaveTheBitsOfTheirOwn) {
  for (const cases::MatmulCase& c : {cases::MatmulCase{3, 256, 512, true},
                                     {200, 264, 512},
                                     {130, 1536, 288, true},
                                     {40, 72, 64},
                                     {9, 37, 50}}) {
    const Operands o(c);
    const OnDevice x(o.x), w(o.w), bias(o.bias), y = as_is(o.output());
    const int64_t width = c.inputs / 2;
    for (const int64_t begin : {int64_t{0}, width}) {
      const auto own = [&](const Array& rows) {
        Array columns({rows.view().dim(0), width});
        for (int64_t r = 0; r < rows.view().dim(0); ++r)
          std::copy_n(rows.view().f32() + r * c.inputs + begin, width,
                      columns.view().f32() + r * width);
        return columns;
      };
      const OnDevice own_x(own(o.x)), own_w(own(o.w)), expected = as_is(o.output());
      run_op([&](const Context& s) { matmul_forward(s, expected, own_x, {own_w, bias}); });
      run_op([&](const Context& s) {
        matmul_forward(s, y, x.view().columns(begin, begin + width),
                       {w.view().columns(begin, begin + width), bias});
      });
      EXPECT_TRUE(same_bits(y.back(), expected.back())) << o.name << ", from " << begin;
    }
  }
}

// Logits are written to rows of a wider buffer; its other columns stay unchanged.
TEST_F(MatmulCuda, StridedF32OutputChangesNothing) {
  for (const cases::MatmulCase& c : {cases::MatmulCase{14, 40, 56, true}, {9, 37, 50}}) {
    const Operands o(c);
    const OnDevice x(o.x), w(o.w), bias(o.bias), y = as_is(o.output());
    Array blank({c.tokens, 120});
    blank.fill(7.0f);
    const OnDevice wide = as_is(blank);
    run_op([&](const Context& s) { matmul_forward(s, y, x, {w, bias}); });
    run_op([&](const Context& s) {
      matmul_forward(s, wide.view().columns(60, 60 + c.outputs), x, {w, bias});
    });
    const Array got = wide.back();
    EXPECT_TRUE(same_bits(got.view().columns(60, 60 + c.outputs), y.back())) << o.name;
    for (int64_t i = 0; i < got.size(); ++i)
      if (i % 120 < 60 || i % 120 >= 60 + c.outputs) {
        ASSERT_EQ(got[i], 7.0f) << i << ", " << o.name;
      }
  }
}

TEST_F(MatmulCuda, GradientsAgreeWithTheCpu) {
  for (const auto& c : all_cases()) {
    const Operands o(c);
    const Array dx({c.tokens, c.inputs}), dw({c.outputs, c.inputs}), dbias({c.outputs});
    matmul_backward_input(cpu_context(), dx, o.dy, o.w, false);
    matmul_backward_weight(cpu_context(), dw, dbias, o.dy, o.x);
    const OnDevice x(o.x), w(o.w), dy(o.dy);
    Array blank({c.tokens, c.inputs});
    blank.fill(std::nanf(""));
    const OnDevice got_dx(blank), got_dw = as_is(Array({c.outputs, c.inputs})),
                                  got_dbias = as_is(Array({c.outputs}));
    run_op([&](const Context& s) { matmul_backward_input(s, got_dx, dy, w, false); });
    run_op([&](const Context& s) { matmul_backward_weight(s, got_dw, got_dbias, dy, x); });
    EXPECT_TRUE(close_by_norm(got_dx.back(), dx, kRoundingBound, 1e-6)) << "dx, " << o.name;
    EXPECT_TRUE(close_by_norm(got_dw.back(), dw, kSumBound, 1e-6)) << "dw, " << o.name;
    EXPECT_TRUE(close_by_norm(got_dbias.back(), dbias, kSumBound, 1e-6)) << "dbias, " << o.name;
  }
}

TEST_F(MatmulCuda, BackwardAccumulates) {
  for (const cases::MatmulCase& c : {cases::MatmulCase{5, 6, 7, true}, {40, 128, 64, true}}) {
    const Operands o(c);
    const Array dx = random_bf16({c.tokens, c.inputs}, 5),
                dw = Array::random({c.outputs, c.inputs}, 6), dbias = Array::random({c.outputs}, 7);
    const OnDevice x(o.x), w(o.w), dy(o.dy), got_dx(dx), got_dw = as_is(dw),
                                                         got_dbias = as_is(dbias);
    run_op([&](const Context& s) { matmul_backward_input(s, got_dx, dy, w, true); });
    run_op([&](const Context& s) { matmul_backward_weight(s, got_dw, got_dbias, dy, x); });
    matmul_backward_input(cpu_context(), dx, o.dy, o.w, true);
    matmul_backward_weight(cpu_context(), dw, dbias, o.dy, o.x);
    EXPECT_TRUE(close_by_norm(got_dx.back(), dx, kTwoRoundings)) << "dx, " << o.name;
    EXPECT_TRUE(close_by_norm(got_dw.back(), dw, kSumBound)) << "dw, " << o.name;
    EXPECT_TRUE(close_by_norm(got_dbias.back(), dbias, kSumBound)) << "dbias, " << o.name;
  }
}

// Without accumulation the weight gradient overwrites its memory; the bias gradient is still added
// to.
TEST_F(MatmulCuda, WeightGradientIsWrittenWhereAsked) {
  for (const cases::MatmulCase& c : {cases::MatmulCase{5, 6, 7}, {40, 128, 64}, {0, 8, 8}}) {
    const Operands o(c);
    Array blank({c.outputs, c.inputs});
    blank.fill(std::nanf(""));
    const OnDevice x(o.x), dy(o.dy), fresh = as_is(blank),
                                     zeroed = as_is(Array({c.outputs, c.inputs}));
    run_op([&](const Context& s) { matmul_backward_weight(s, fresh, {}, dy, x, false); });
    run_op([&](const Context& s) { matmul_backward_weight(s, zeroed, {}, dy, x, true); });
    EXPECT_TRUE(close_by_norm(fresh.back(), zeroed.back(), kSumBound)) << o.name;
  }
}

TEST_F(MatmulCuda, BackwardHasTheSameBitsEveryTime) {
  const Operands o({300, 256, 512, true});
  const OnDevice x(o.x), w(o.w), dy(o.dy);
  std::vector<Array> first;
  for (int run = 0; run < 3; ++run) {
    const OnDevice dx(Array({300, 512})), dw = as_is(Array({256, 512})),
                                          dbias = as_is(Array({256}));
    run_op([&](const Context& s) { matmul_backward_input(s, dx, dy, w, false); });
    run_op([&](const Context& s) { matmul_backward_weight(s, dw, dbias, dy, x); });
    const std::vector<Array> got{dx.back(), dw.back(), dbias.back()};
    if (run == 0) first = got;
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(same_bits(got[i], first[i])) << "result " << i << ", run " << run;
  }
}

TEST_F(MatmulCuda, NotANumberStaysInItsRow) {
  for (const cases::MatmulCase& c : {cases::MatmulCase{4, 20, 30}, {4, 24, 32}}) {
    Operands o(c);
    o.x[2 * c.inputs + 5] = std::nanf("");
    const OnDevice x(o.x), w(o.w), y(o.output());
    run_op([&](const Context& s) { matmul_forward(s, y, x, {w}); });
    const Array got = y.back();
    for (int64_t i = 0; i < got.size(); ++i)
      EXPECT_EQ(std::isnan(got[i]), i / c.outputs == 2) << coordinates(got, i) << ", " << o.name;
  }
}

}  // namespace
}  // namespace slimexx::ops::testing
