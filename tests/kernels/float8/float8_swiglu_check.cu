// Every variant of the FP8 product with SwiGLU as epilogue, bit by bit against the FP8 product
// followed by the SwiGLU kernel. float8_check checks that product. x is e4m3, or bf16 that the
// product quantises.
//
//   float8_swiglu_check [small | tiny]      for compute-sanitizer: check_size.h
#include <algorithm>
#include <vector>

#include "slimexx/kernels/rows.h"
#include "tests/kernels/check_size.h"
#include "tests/kernels/float8/bf16_input.cuh"
#include "tests/kernels/float8/quantise_data.cuh"
#include "tests/kernels/gemm_reference.cuh"

namespace slimexx::kernels::testing {
namespace {

constexpr int64_t kGuard = 4096;  // elements after h that must keep their poison
CheckCounts counts;

struct Operands : Float8Operands {
  explicit Operands(const Float8Case& c)
      : Float8Operands(c), f(n / 2), h(m * (f + 8) + kGuard), expected(m * f) {
    compute_expected();
  }
  void compute_expected() const {
    const DeviceArray<__nv_bfloat16> gate_up(m * n);
    const char* fault = launch_fp8_gemm(args(m, gate_up.data()), nullptr);
    if (counts.fails(fault == nullptr)) std::printf("FAIL launch_fp8_gemm: %s\n", fault);
    SLX_CUDA(swiglu_forward(expected.data(), gate_up.data(), m, f, nullptr));
    SLX_CUDA(cudaDeviceSynchronize());
  }
  int64_t f;
  const Bf16Input* input = nullptr;  // x in bf16, if products quantise it
  DeviceArray<__nv_bfloat16> h, expected;
};

// Checks the first m rows of h under configuration c, alternately with row strides f and f + 8.
void check_config(Operands& o, int64_t m, const Fp8GemmConfig& c, bool overlap = false) {
  static DeviceArray<Difference> differences(2);
  const int64_t stride = o.f + (counts.comparisons % 3 == 2 ? 8 : 0), total = m * stride + kGuard;
  SLX_CUDA(cudaMemset(o.h.data(), 0xff, static_cast<size_t>(total) * 2));
  Fp8GemmArgs args = o.args(m, o.h.data());
  args.overlap_previous = overlap;
  args.y_stride = stride == o.f ? 0 : stride;
  if (o.input != nullptr) o.input->replace(args);
  const char* fault = launch_fp8_gemm_swiglu(args, c, nullptr);
  Difference found[2] = {{0, ~0ull}, {0, ~0ull}};
  SLX_CUDA(cudaMemcpy(differences.data(), found, sizeof(found), cudaMemcpyHostToDevice));
  compare_product<<<1024, 256>>>(reinterpret_cast<const uint16_t*>(o.h.data()), stride, total,
                                 reinterpret_cast<const uint16_t*>(o.expected.data()), m, o.f,
                                 differences.data());
  SLX_CUDA(cudaDeviceSynchronize());
  SLX_CUDA(cudaMemcpy(found, differences.data(), sizeof(found), cudaMemcpyDeviceToHost));
  if (!counts.fails(fault == nullptr && found[0].count + found[1].count == 0)) return;
  std::printf(
      "FAIL m %ld f %ld k %ld stride %ld bias %d %s x in bf16: %s seed %lu %s %dx%d tokens %d "
      "cluster %d "
      "band %d lead %d: %s",
      long(m), long(o.f), long(o.k), long(stride), o.sizes.has_bias, name_values(o.sizes.values),
      o.input == nullptr ? "no" : name_values(o.input->of.values),
      static_cast<unsigned long>(o.sizes.seed), c.swap_operands ? "swapped" : "plain", c.rows,
      c.columns, c.tokens, c.cluster, c.band, c.lead, fault == nullptr ? "queued" : fault);
  if (found[0].count > 0) {
    const auto at = static_cast<int64_t>(found[0].first);
    const int64_t row = at / stride, column = at % stride;
    std::printf(": %llu elements differ, first at row %ld column %ld: %g, expected %g",
                found[0].count, long(row), long(column), __bfloat162float(o.h.get(at)),
                __bfloat162float(o.expected.get(row * o.f + column)));
  }
  if (found[1].count > 0) {
    std::printf(": %llu elements outside of h were written, first at row %ld column %ld",
                found[1].count, long(found[1].first) / stride, long(found[1].first) % stride);
  }
  std::printf("\n");
}

void check_all_configs(Operands& o, int64_t m) {
  check_config(o, m, choose_fp8_gemm_swiglu_config(m, o.n, o.k));
  for (int i = 0; i < count_fp8_gemm_swiglu_configs(); ++i) {
    Fp8GemmConfig c = get_fp8_gemm_swiglu_config(i);
    check_config(o, m, c);
    if (!c.swap_operands) {
      c.lead = (c.lead + 1) % 3;
      check_config(o, m, c, true);
      continue;
    }
    c.tokens = std::max(1, c.columns - 5);
    check_config(o, m, c, true);
    c.tokens = 0;
    const int least = c.rows - 48;
    for (c.rows -= 16 * c.cluster; c.rows >= least; c.rows -= 16 * c.cluster) check_config(o, m, c);
  }
}

// Every number of rows that products may quantise themselves, with each tile for them.
void check_bf16_input(const Float8Case& sizes, const Bf16InputCase& values) {
  Operands o(sizes);
  const Bf16Input input(o, values);
  o.input = &input;
  o.compute_expected();
  for (int64_t m = 1; m <= o.m && fp8_gemm_quantises(m, o.k); ++m) {
    check_config(o, m, choose_fp8_gemm_swiglu_config(m, o.n, o.k, true), true);
    for (int i = 0; i < count_fp8_gemm_swiglu_configs(); ++i) {
      const Fp8GemmConfig c = get_fp8_gemm_swiglu_config(i);
      if (!suits_fp8_bf16_input(c)) continue;
      check_config(o, m, c, m % 2 == 0);
      check_config(o, m, shrink_tile(c, m % 2 == 0 ? 16 : 48), true);
    }
  }
}

void check_ragged(const std::vector<int64_t>& rows, const std::vector<int64_t>& widths,
                  const std::vector<int64_t>& depths) {
  int turn = 0;
  for (const int64_t m : rows) {
    for (const int64_t f : widths) {
      for (const int64_t k : depths) {
        Operands o({.m = m,
                    .n = 2 * f,
                    .k = k,
                    .has_bias = turn % 2 == 1,
                    .values = static_cast<F8Values>(turn / 2 % 4),
                    .gap = turn % 3 == 0 ? 128 : 0});
        ++turn;
        check_all_configs(o, m);
      }
    }
  }
}

void check_refusals() {
  const Float8Operands o({.m = 8, .n = 192, .k = 128});
  const DeviceArray<__nv_bfloat16> h(8 * 192);
  const auto refuses = [&](const char* what, int64_t n, GemmOutput output, int64_t stride) {
    Fp8GemmArgs args = o.args(8, h.data());
    args.n = n;
    args.output = output;
    args.y_stride = stride;
    if (counts.fails(launch_fp8_gemm_swiglu(args, nullptr) != nullptr)) {
      std::printf("FAIL: %s was not refused\n", what);
    }
  };
  refuses("n of 192", 192, GemmOutput::kBf16, 0);
  refuses("h in f32", 128, GemmOutput::kF32, 0);
  refuses("y_stride below n / 2", 128, GemmOutput::kBf16, 56);
}

int run(CheckSize size) {
  check_refusals();
  check_bf16_input({.m = 9, .n = 384, .k = 384}, kBf16Inputs[1]);
  if (size == CheckSize::kAll) {
    for (const Bf16InputCase& values : kBf16Inputs) {
      check_bf16_input({.m = 16, .n = 640, .k = 1152, .has_bias = true, .gap = 128}, values);
    }
    check_bf16_input({.m = 8, .n = 24576, .k = 4096}, kBf16Inputs[0]);
    check_ragged({1, 9, 16, 65, 130, 300}, {64, 192, 576}, {128, 640, 3200});
    Operands o({.m = 600, .n = 3072, .k = 2048, .has_bias = true, .exponents = 12});
    for (const int64_t m : {1, 2, 17, 64, 128, 256, 600}) check_all_configs(o, m);
  } else if (size == CheckSize::kSmall) {
    check_ragged({1, 21, 300}, {64, 448}, {128, 640});
  }
  Operands tiles({.m = 1030, .n = 5120, .k = 512, .has_bias = true});
  for (int i = 0; i < count_fp8_gemm_swiglu_configs(); ++i) {
    const Fp8GemmConfig c = get_fp8_gemm_swiglu_config(i);
    const int64_t features = c.swap_operands ? c.rows : c.columns;
    const int64_t tokens = c.swap_operands ? c.columns : c.rows;
    const int64_t beside = (tiles.n + features - 1) / features;
    check_config(tiles, std::min(tiles.m, tokens * (140 * c.cluster / beside + 1) - 3), c, true);
  }
  std::printf("float8_swiglu_check: %d comparisons, %d failures\n", counts.comparisons,
              counts.failures);
  return counts.failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) {
  using namespace slimexx::kernels::testing;
  return run(read_check_size(argc, argv));
}
