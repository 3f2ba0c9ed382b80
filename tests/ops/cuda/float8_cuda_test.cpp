// FP8 on the device: the bytes of the quantisers are the CPU's, products agree with the CPU's to
// rounding, and a row alone has the bits of the batch.
#include "slimexx/ops/float8.h"

#include <numeric>

#include "cpu_context.h"
#include "ops/cuda/cuda_testing.h"
#include "ops/cuda/experts_cuda_problem.h"
#include "slimexx/ops/elementwise.h"
#include "slimexx/ops/matmul.h"

namespace slimexx::ops::testing {
namespace {

class Float8Cuda : public DeviceTest {};

using Bytes = std::vector<uint8_t>;

// Bytes on the device.
struct DeviceBytes {
  DeviceBytes(int64_t rows_in, int64_t columns_in)
      : rows(rows_in), columns(columns_in), buffer(test_device(), rows * columns, "test") {}
  Tensor view() const { return buffer.view(DType::kF8E4M3, {rows, columns}); }
  Bytes back() const {
    Bytes bytes(static_cast<size_t>(rows * columns));
    tensor::download(tensor::compute_stream(test_device()), bytes.data(), view());
    return bytes;
  }
  int64_t rows, columns;
  tensor::Buffer buffer;
};

Tensor on_host(Bytes& bytes, int64_t columns) {
  return {bytes.data(), DType::kF8E4M3, {}, {std::ssize(bytes) / columns, columns}};
}

// A weight [N,K] quantised on both sides.
struct Weight {
  Weight(int64_t n, int64_t k, uint64_t seed, tensor::F8ScaleRule rule)
      : plain(random_bf16({n, k}, seed, 0.05)),
        bytes(static_cast<size_t>(n * k)),
        scales({n / kF8UnitRows, k / kF8Columns}),
        units(static_cast<size_t>((n + 127) / 128 * 2), -1),
        device_plain(plain),
        device_bytes(n, k),
        device_scales(as_is(scales)) {
    std::iota(units.begin(), units.begin() + n / kF8UnitRows, 0);
    const OnDevice device_units = as_is(Array::integers(units));
    quantise_blocks(cpu_context(),
                    {.plain = plain,
                     .values = on_host(bytes, k),
                     .rounded = plain,
                     .scales = scales,
                     .units = Tensor(units.data(), DType::kI32, {}, {std::ssize(units) / 2, 2}),
                     .rule = rule});
    run_op([&](const Context& s) {
      quantise_blocks(s, {.plain = device_plain,
                          .values = device_bytes.view(),
                          .rounded = device_plain,
                          .scales = device_scales,
                          .units = device_units.view().reshaped({std::ssize(units) / 2, 2}),
                          .rule = rule});
    });
  }
  Linear device(bool has_plain) const {
    return {.weight = has_plain ? device_plain.view() : Tensor{},
            .values = device_bytes.view(),
            .scales = device_scales};
  }
  Array plain;
  Bytes bytes;
  Array scales;
  std::vector<int32_t> units;
  OnDevice device_plain;
  DeviceBytes device_bytes;
  OnDevice device_scales;
};

TEST_F(Float8Cuda, QuantisersHaveTheBytesOfTheCpu) {
  for (const auto rule : {tensor::F8ScaleRule::kPowerOfTwo, tensor::F8ScaleRule::kFloat}) {
    for (const int64_t n : {64, 192, 320}) {
      const Weight w(n, 384, 3, rule);
      EXPECT_EQ(w.device_bytes.back(), w.bytes) << n;
      EXPECT_TRUE(same_bits(w.device_scales.back(), w.scales)) << n;
      EXPECT_TRUE(same_bits(w.device_plain.back(), rounded(w.plain))) << n;
    }
  }
  for (const int64_t t : {1, 5, 130}) {
    const Array x = random_bf16({t, 256}, 4, 3.0);
    Bytes bytes(static_cast<size_t>(t * 256));
    Array scales({2, (t + 3) / 4 * 4});
    scales.fill(0);
    quantise_rows(cpu_context(), on_host(bytes, 256), scales, x);
    const OnDevice device_x(x), device_scales = as_is(scales);
    const DeviceBytes device_bytes(t, 256);
    run_op(
        [&](const Context& s) { quantise_rows(s, device_bytes.view(), device_scales, device_x); });
    EXPECT_EQ(device_bytes.back(), bytes) << t;
    EXPECT_TRUE(same_bits(device_scales.back(), scales)) << t;
  }
}

TEST_F(Float8Cuda, ProductsAgreeWithTheCpuAndARowAloneHasTheBitsOfTheBatch) {
  struct Shape {
    int64_t tokens, n, k;
    bool bias;
  };
  for (const Shape& c :
       {Shape{1, 64, 128, true}, Shape{7, 192, 256, false}, Shape{64, 1344, 512, true},
        Shape{200, 512, 1024, false}, Shape{333, 2048, 2048, true}}) {
    const std::string name =
        std::to_string(c.tokens) + "x" + std::to_string(c.n) + "x" + std::to_string(c.k);
    Weight w(c.n, c.k, 5, tensor::F8ScaleRule::kPowerOfTwo);
    const Array x = random_bf16({c.tokens, c.k}, 6);
    const Array bias = c.bias ? random_bf16({c.n}, 7) : Array();
    Array expected({c.tokens, c.n});
    tensor::Arena scratch({}, (c.tokens + c.n) * c.k * 4 + 4096, "test");
    matmul_forward(
        compute_context(scratch), expected, x,
        {.weight = w.plain, .bias = bias, .values = on_host(w.bytes, c.k), .scales = w.scales});
    const OnDevice device_x(x), device_bias(bias), f32 = as_is(expected), bf16(expected);
    Linear linear = w.device(true);
    linear.bias = device_bias;
    run_op([&](const Context& s) { matmul_forward(s, f32, device_x, linear); });
    const Array all = f32.back();
    EXPECT_TRUE(close_by_norm(all, expected, 1e-3, 1e-6)) << name;
    linear.weight = {};
    run_op([&](const Context& s) { matmul_forward(s, bf16, device_x, linear); });
    EXPECT_TRUE(same_bits(bf16.back(), rounded(all))) << name;
    for (int64_t t = 0; t < c.tokens; t += 19) {
      for (const int64_t rows : {int64_t{1}, int64_t{3}, int64_t{17}, int64_t{70}}) {
        if (t + rows > c.tokens) continue;
        const OnDevice alone = as_is(Array({rows, c.n}));
        run_op([&](const Context& s) {
          matmul_forward(s, alone, device_x.view().rows(t, t + rows), linear);
        });
        EXPECT_TRUE(same_bits(alone.back(), all.view().rows(t, t + rows)))
            << name << ", " << rows << " rows from " << t;
      }
    }
  }
}

// The weights of `experts` experts as rows of one quantised matrix.
struct ExpertWeights : Weight {
  ExpertWeights(int64_t experts_in, int64_t n_in, int64_t k_in, uint64_t seed)
      : Weight(experts_in * n_in, k_in, seed, tensor::F8ScaleRule::kPowerOfTwo),
        experts(experts_in),
        n(n_in),
        k(k_in) {}
  Linear host() {
    return {.weight = plain.view().reshaped({experts, n, k}),
            .values = on_host(bytes, k).reshaped({experts, n, k}),
            .scales = scales.view().reshaped({experts, n / kF8UnitRows, k / kF8Columns})};
  }
  Linear all() const {
    const Linear rows = device(false);
    return {.values = rows.values.reshaped({experts, n, k}),
            .scales = rows.scales.reshaped({experts, n / kF8UnitRows, k / kF8Columns})};
  }
  Linear of(int64_t e) const {
    const Linear rows = device(false);
    const int64_t scale_rows = n / kF8UnitRows;
    return {.values = rows.values.rows(e * n, (e + 1) * n),
            .scales = rows.scales.rows(e * scale_rows, (e + 1) * scale_rows)};
  }
  int64_t experts, n, k;
};

TEST_F(Float8Cuda, ExpertsAgreeWithTheCpuAndHaveTheBitsOfTheirOwnProducts) {
  struct Shape {
    int64_t tokens, experts, top_k, n, k;
  };
  for (const Shape& c :
       {Shape{1, 8, 3, 192, 256}, Shape{7, 8, 2, 64, 128}, Shape{30, 16, 4, 320, 512},
        Shape{300, 4, 2, 256, 1024}, Shape{500, 3, 1, 448, 384}}) {
    const std::string name = std::to_string(c.tokens) + " tokens to " + std::to_string(c.top_k) +
                             " of " + std::to_string(c.experts);
    const int64_t rows = c.tokens * c.top_k;
    ExpertWeights w(c.experts, c.n, c.k, 10);
    DeviceRows order(c.tokens, c.experts, c.top_k);
    const Array x = random_bf16({rows, c.k}, 11);
    Array expected({rows, c.n});
    tensor::Arena scratch({}, rows * c.k * 4 + 4096, "test");
    expert_matmul_forward(compute_context(scratch), expected, x, w.host(), order.host.routed());
    const OnDevice device_x(x), y(expected), each = as_is(expected);
    run_op(
        [&](const Context& s) { expert_matmul_forward(s, y, device_x, w.all(), order.routed()); });
    run_op([&](const Context& s) {
      for (int64_t e = 0; e < c.experts; ++e) {
        const int64_t first = order.host.offsets[static_cast<size_t>(e)],
                      end = order.host.offsets[static_cast<size_t>(e) + 1];
        if (first == end) continue;
        matmul_forward(s, each.view().rows(first, end), device_x.view().rows(first, end), w.of(e));
      }
    });
    EXPECT_TRUE(close_by_norm(each.back(), expected, 1e-3, 1e-6)) << name;
    const Array all = y.back();
    EXPECT_TRUE(same_bits(all, rounded(each.back()))) << name;
    for (int64_t r = 0; r < rows; r += 7) {
      const OnDevice alone(Array({1, c.n}));
      run_op([&](const Context& s) {
        matmul_forward(s, alone, device_x.view().rows(r, r + 1), w.of(order.host.expert_of(r)));
      });
      EXPECT_TRUE(same_bits(alone.back(), all.view().rows(r, r + 1))) << name << ", row " << r;
    }
  }
}

TEST_F(Float8Cuda, FusedSwigluHasTheBitsOfItsSteps) {
  for (const int64_t features : {64, 192, 1536}) {
    const Weight w(2 * features, 512, 11, tensor::F8ScaleRule::kPowerOfTwo);
    for (const int64_t tokens : {1, 20, 300}) {
      const OnDevice x(random_bf16({tokens, 512}, 12));
      const OnDevice gate_up(Array({tokens, 2 * features})), expected(Array({tokens, features})),
          h(Array({tokens, features}));
      const Linear linear = w.device(false);
      run_op([&](const Context& s) { matmul_forward(s, gate_up, x, linear); });
      run_op([&](const Context& s) { swiglu_forward(s, expected, gate_up); });
      run_op([&](const Context& s) { matmul_swiglu_forward(s, h, x, linear); });
      EXPECT_TRUE(same_bits(h.back(), expected.back())) << tokens << "x" << features;
    }
  }
}

TEST_F(Float8Cuda, FusedSwigluOfExpertsHasTheBitsOfItsSteps) {
  constexpr int64_t kExperts = 16, kTopK = 4, kF = 192, kK = 512;
  const ExpertWeights w(kExperts, 2 * kF, kK, 15), shared(1, 2 * kF, kK, 16);
  for (const int64_t tokens : {1, 5, 100, 900}) {
    const int64_t joined = tokens == 1 ? 1 : 0, rows = tokens * kTopK + joined;
    const DeviceRows order(tokens, kExperts, kTopK);
    const OnDevice x(random_bf16({tokens == 1 ? 1 : rows, kK}, 17)), gate_up(Array({rows, 2 * kF})),
        expected(Array({rows, kF})), h(Array({rows, kF}));
    const Linear beside = joined == 1 ? shared.of(0) : Linear{};
    run_op([&](const Context& s) {
      expert_matmul_forward(s, gate_up, x, w.all(), order.routed(), beside);
      swiglu_forward(s, expected, gate_up);
    });
    run_op([&](const Context& s) {
      expert_matmul_swiglu_forward(s, h, x, w.all(), order.routed(), beside);
    });
    EXPECT_TRUE(same_bits(h.back(), expected.back())) << tokens;
  }
}

// All experts of a token, including the shared expert, read the same row.
TEST_F(Float8Cuda, ExpertsOfOneToken) {
  constexpr int64_t kExperts = 16, kTopK = 5, kN = 320, kK = 512;
  const ExpertWeights w(kExperts, kN, kK, 12), shared(1, kN, kK, 13);
  const DeviceRows order(1, kExperts, kTopK);
  const OnDevice x(random_bf16({1, kK}, 14)), y(Array({kTopK + 1, kN})), routed(Array({kTopK, kN}));
  run_op([&](const Context& s) {
    expert_matmul_forward(s, routed, x, w.all(), order.routed());
    expert_matmul_forward(s, y, x, w.all(), order.routed(), shared.of(0), true);
  });
  const Array all = y.back();
  EXPECT_TRUE(same_bits(routed.back(), all.view().rows(0, kTopK)));
  for (int64_t r = 0; r <= kTopK; ++r) {
    const OnDevice alone(Array({1, kN}));
    run_op([&](const Context& s) {
      matmul_forward(s, alone, x, r == kTopK ? shared.of(0) : w.of(order.host.expert_of(r)));
    });
    EXPECT_TRUE(same_bits(alone.back(), all.view().rows(r, r + 1))) << r;
  }
}

// The operands are columns of wider tensors, as leaves are.
TEST_F(Float8Cuda, ColumnsOfWiderOperands) {
  const Weight w(256, 512, 8, tensor::F8ScaleRule::kFloat);
  const Array x = random_bf16({9, 512}, 9);
  const OnDevice device_x(x), y = as_is(Array({9, 256})), expected = as_is(Array({9, 256}));
  const Linear whole = w.device(false);
  const Linear part{.values = whole.values.columns(256, 512), .scales = whole.scales.columns(2, 4)};
  run_op([&](const Context& s) { matmul_forward(s, y, device_x.view().columns(256, 512), part); });
  Array own({9, 256});  // the same columns, dense
  for (int64_t t = 0; t < 9; ++t)
    for (int64_t i = 0; i < 256; ++i) own[t * 256 + i] = x[t * 512 + 256 + i];
  const DeviceBytes values(256, 256);
  Bytes bytes(256 * 256);
  for (int64_t n = 0; n < 256; ++n)
    std::copy_n(w.bytes.begin() + n * 512 + 256, 256, bytes.begin() + n * 256);
  tensor::upload(tensor::compute_stream(test_device()), values.view(), bytes.data());
  Array scales({4, 2});
  for (int64_t u = 0; u < 4; ++u)
    for (int64_t c = 0; c < 2; ++c) scales[u * 2 + c] = w.scales[u * 4 + 2 + c];
  const OnDevice device_own(own), device_scales = as_is(scales);
  run_op([&](const Context& s) {
    matmul_forward(s, expected, device_own, {.values = values.view(), .scales = device_scales});
  });
  EXPECT_TRUE(same_bits(y.back(), expected.back()));
}

}  // namespace
}  // namespace slimexx::ops::testing
