// Every variant of the product with SwiGLU as epilogue, bit by bit against the product followed by
// the SwiGLU kernel: ragged and whole shapes, few rows, and normal, wide-ranged and extreme values.
//
//   swiglu_gemm_check [small | tiny]      for compute-sanitizer: check_size.h
#include <algorithm>
#include <vector>

#include "slimexx/kernels/gemm.h"
#include "slimexx/kernels/rows.h"
#include "tests/kernels/check_size.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/gemm_case.cuh"
#include "tests/kernels/gemm_reference.cuh"
#include "tests/kernels/wide_values.cuh"

namespace slimexx::kernels::testing {
namespace {

using Bf16Array = DeviceArray<__nv_bfloat16>;
constexpr int64_t kGuard = 4096;  // elements after h that must keep their poison
constexpr uint64_t kSeed = 40;

int comparisons = 0;
int failures = 0;

void expect_queued(const char* fault) {
  if (fault == nullptr) return;
  ++failures;
  std::printf("FAIL launch: %s\n", fault);
}

struct Operands : GemmOperands {
  // Gates have a standard deviation of `spread`.
  Operands(int64_t rows, int64_t width, int64_t depth, bool with_bias, float spread = 1.0f,
           Values kind = Values::kNormal)
      : GemmOperands({.m = rows,
                      .n = 2 * width,
                      .k = depth,
                      .has_bias = with_bias,
                      .values = kind,
                      .spread = spread,
                      .seed = kSeed}),
        f(width),
        h(m * (f + 8) + kGuard),
        expected(m * f) {
    compute_expected();
  }
  void compute_expected() {
    Bf16Array gate_up(m * 2 * f);
    expect_queued(launch_gemm(args(m, gate_up.data()), {}));
    SLX_CUDA(swiglu_forward(expected.data(), gate_up.data(), m, f, {}));
    SLX_CUDA(cudaDeviceSynchronize());
  }
  int64_t f;
  Bf16Array h, expected;
};

void report(const Operands& o, int64_t m, int64_t stride, const GemmConfig& c,
            const Difference (&found)[2]) {
  if (++failures > 40) return;
  std::printf(
      "FAIL m %ld f %ld k %ld stride %ld bias %d seed %lu %s %dx%d tokens %d cluster %d band %d "
      "blocks %d lead %d",
      long(m), long(o.f), long(o.k), long(stride), o.bias_pointer != nullptr,
      static_cast<unsigned long>(kSeed), c.swap_operands ? "swapped" : "plain", c.rows, c.columns,
      c.tokens, c.cluster, c.band, c.blocks_per_sm, c.lead);
  if (found[0].count > 0) {
    const int64_t at = static_cast<int64_t>(found[0].first), row = at / stride;
    std::printf(": %llu elements differ, first at row %ld column %ld: %g, expected %g",
                found[0].count, long(row), long(at % stride), __bfloat162float(o.h.get(at)),
                __bfloat162float(o.expected.get(row * o.f + at % stride)));
  }
  if (found[1].count > 0) {
    std::printf(": %llu elements outside of h were written, first at row %ld column %ld",
                found[1].count, long(found[1].first) / stride, long(found[1].first) % stride);
  }
  std::printf("\n");
}

// Checks the first m rows of h under configuration c, alternately with row strides f and f + 8.
void check_config(Operands& o, int64_t m, const GemmConfig& c, bool overlap = false) {
  static DeviceArray<Difference> differences(2);
  const int64_t stride = o.f + (comparisons % 3 == 2 ? 8 : 0), total = m * stride + kGuard;
  SLX_CUDA(cudaMemset(o.h.data(), 0xff, static_cast<size_t>(total) * 2));
  GemmArgs args = o.args(m, o.h.data());
  args.overlap_previous = overlap;
  args.y_stride = stride == o.f ? 0 : stride;
  expect_queued(launch_gemm_swiglu(args, c, nullptr));
  Difference found[2] = {{0, ~0ull}, {0, ~0ull}};
  SLX_CUDA(cudaMemcpy(differences.data(), found, sizeof(found), cudaMemcpyHostToDevice));
  compare_product<<<1024, 256>>>(reinterpret_cast<const uint16_t*>(o.h.data()), stride, total,
                                 reinterpret_cast<const uint16_t*>(o.expected.data()), m, o.f,
                                 differences.data());
  SLX_CUDA(cudaDeviceSynchronize());
  SLX_CUDA(cudaMemcpy(found, differences.data(), sizeof(found), cudaMemcpyDeviceToHost));
  ++comparisons;
  if (found[0].count + found[1].count > 0) report(o, m, stride, c, found);
}

void check_all_configs(Operands& o, int64_t m) {
  for (int i = 0; i < count_gemm_swiglu_configs(); ++i) {
    GemmConfig c = get_gemm_swiglu_config(i);
    check_config(o, m, c);
    c.lead = c.lead == 0 ? 3 : 0;
    if (!c.swap_operands && c.rows == 128) check_config(o, m, c);
    c.tokens = std::max(1, (c.swap_operands ? c.columns : c.rows) - 21);
    check_config(o, m, c, true);
    c.tokens = 0;
    if (!c.swap_operands && c.rows == 64 && c.columns <= 64) {
      c.blocks_per_sm = 2;
      check_config(o, m, c, true);
    }
    const int least = c.rows - 48;
    while (c.swap_operands && c.rows > least) {
      c.rows -= 16;
      check_config(o, m, c);
    }
  }
  check_config(o, m, choose_gemm_swiglu_config(m, 2 * o.f, o.k));
}

void check_ragged(const std::vector<int64_t>& rows, const std::vector<int64_t>& widths,
                  const std::vector<int64_t>& depths) {
  bool bias = false;
  for (const int64_t m : rows) {
    for (const int64_t f : widths) {
      for (const int64_t k : depths) {
        bias = !bias;
        Operands o(m, f, k, bias);
        check_all_configs(o, m);
      }
    }
  }
}

// Checks the chosen tile at every number of rows that decode may have.
void check_chosen(int64_t f, int64_t k) {
  Operands o(520, f, k, true);
  for (int64_t m = 1; m <= o.m; m += m < 150 ? 1 : 7) {
    check_config(o, m, choose_gemm_swiglu_config(m, 2 * f, k), m % 2 == 0);
  }
}

// Checks gates at which the exponential underflows or overflows, infinite gates, and rows of NaN.
void check_extremes(float spread) {
  Operands o(300, 264, 192, true, spread);
  const uint16_t special[3] = {0x7fc0, 0x7f80, 0xff80};
  for (int i = 0; i < 3; ++i) {
    SLX_CUDA(
        cudaMemcpy(o.x.data() + (40 + 97 * i) * o.k + 7, special + i, 2, cudaMemcpyHostToDevice));
  }
  o.compute_expected();
  check_all_configs(o, o.m);
}

void expect_fault(const char* what, const GemmArgs& args) {
  ++comparisons;
  if (launch_gemm_swiglu(args, nullptr) != nullptr) return;
  ++failures;
  std::printf("FAIL: %s was not refused\n", what);
}

void check_refusals() {
  const Bf16Array memory(8192);
  __nv_bfloat16* p = memory.data();
  expect_fault("n of 24", {p, p, nullptr, p, 8, 24, 64});
  expect_fault("k of 72", {p, p, nullptr, p, 8, 16, 72});
  expect_fault("misaligned w", {p, p + 1, nullptr, p, 8, 16, 64});
  expect_fault("misaligned x", {p + 4, p, nullptr, p, 8, 16, 64});
  expect_fault("misaligned h", {p, p, nullptr, p + 4, 8, 16, 64});
  expect_fault("bias at an odd element", {p, p, p + 1, p, 8, 16, 64});
  expect_fault("null h", {p, p, nullptr, nullptr, 8, 16, 64});
  GemmArgs args{p, p, nullptr, p, 8, 32, 64};
  args.y_stride = 8;
  expect_fault("y_stride below f", args);
  args.y_stride = 20;
  expect_fault("y_stride of 20", args);
  args.y_stride = 0;
  args.output = GemmOutput::kF32;
  expect_fault("f32", args);
  ++comparisons;
  if (launch_gemm_swiglu({nullptr, nullptr, nullptr, nullptr, 0, 16, 64}, nullptr) == nullptr)
    return;
  ++failures;
  std::printf("FAIL: m of 0 was refused\n");
}

// Checks each variant with a K of two rounds of its ring, then with more tiles than SMs.
void check_tiny() {
  Operands ring(130, 136, 2560, true), tiles(1160, 2568, 64, false);
  for (int i = 0; i < count_gemm_swiglu_configs(); ++i) {
    GemmConfig c = get_gemm_swiglu_config(i);
    check_config(ring, ring.m, c);
    const int room = c.swap_operands ? c.columns : c.rows;
    c.tokens = i % 2 == 0 ? 0 : room - 21;
    const int tokens = c.tokens == 0 ? room : c.tokens;
    const int features = c.swap_operands ? c.rows : c.columns;
    const int64_t beside = (2 * tiles.f + features - 1) / features;
    c.lead = c.lead == 0 ? 3 : 0;
    check_config(tiles, std::min<int64_t>(tiles.m, tokens * (140 / beside + 1) - 3), c, true);
  }
}

int run(CheckSize size) {
  check_refusals();
  if (size == CheckSize::kTiny) {
    check_tiny();
  } else if (size == CheckSize::kSmall) {
    check_ragged({1}, {72}, {64});
    check_ragged({17, 300}, {264}, {192});
  } else {
    check_ragged({1, 7, 8, 16, 17, 33, 64, 65, 128, 130, 300, 600}, {8, 40, 136, 264, 1032},
                 {64, 192, 1088});
    for (const float spread : {30.0f, 1e30f}) check_extremes(spread);
    for (const Values values : kFiniteValues) {
      Operands o(300, 264, 1088, true, 1.0f, values);
      for (const int64_t m : {1, 16, 64, 130, 300}) check_all_configs(o, m);
    }
    check_chosen(9728, 256);
    check_chosen(1280, 2560);
    for (const bool bias : {false, true}) {
      Operands o(8192, 2312, 4096, bias);
      for (const int64_t m : {1, 31, 64, 130, 256, 1000, 8192}) check_all_configs(o, m);
    }
  }
  std::printf("swiglu_gemm_check: %d comparisons, %d failures\n", comparisons, failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) {
  using namespace slimexx::kernels::testing;
  return run(read_check_size(argc, argv));
}
