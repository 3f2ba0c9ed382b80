// The comparison of a dense FP8 product with the reference, bit by bit.
#pragma once
#include "tests/kernels/float8/bf16_input.cuh"
#include "tests/kernels/float8/quantise_data.cuh"
#include "tests/kernels/gemm_reference.cuh"

namespace slimexx::kernels::testing {

inline constexpr int64_t kGuard = 4096;  // elements after y that must keep their poison
// Operands of a dense product, and what it must compute.
struct Operands : Float8Operands {
  explicit Operands(const Float8Case& c)
      : Float8Operands(c), y(m * (n + 8) + kGuard), expected(m * n), sums(m * n) {
    compute_expected();
  }
  void compute_expected() const {
    multiply_reference(*this, expected.data(), sums.data());
    SLX_CUDA(cudaDeviceSynchronize());
  }
  const Bf16Input* input = nullptr;  // x in bf16, if products quantise it
  DeviceArray<float> y;              // bf16 products use half of it
  DeviceArray<__nv_bfloat16> expected;
  DeviceArray<float> sums;
};

inline void print_config(const Fp8GemmConfig& c) {
  std::printf("%s %dx%d tokens %d cluster %d band %d lead %d",
              c.swap_operands ? "swapped" : "plain", c.rows, c.columns, c.tokens, c.cluster, c.band,
              c.lead);
}

// How y is stored.
struct Output {
  GemmOutput type;
  int64_t gap;  // y_stride - n
};

template <class Bits>
void report(const Operands& o, int64_t m, const Output& output, const Fp8GemmConfig& c,
            const Bits* expected, const Difference (&found)[2]) {
  std::printf("FAIL m %ld n %ld k %ld bias %d w gap %ld %s%s %s x in bf16: %s seed %lu ", long(m),
              long(o.n), long(o.k), o.sizes.has_bias, long(o.sizes.gap),
              sizeof(Bits) == 4 ? "f32" : "bf16", output.gap == 0 ? "" : " rows apart",
              name_values(o.sizes.values),
              o.input == nullptr ? "no" : name_values(o.input->of.values),
              static_cast<unsigned long>(o.sizes.seed));
  print_config(c);
  const int64_t stride = o.n + output.gap;
  if (found[0].count > 0) {
    const auto i = static_cast<int64_t>(found[0].first);
    const int64_t row = i / stride, column = i % stride;
    Bits own, right;
    SLX_CUDA(cudaMemcpy(&own, reinterpret_cast<const Bits*>(o.y.data()) + i, sizeof(Bits),
                        cudaMemcpyDeviceToHost));
    SLX_CUDA(
        cudaMemcpy(&right, expected + row * o.n + column, sizeof(Bits), cudaMemcpyDeviceToHost));
    std::printf(": %llu elements differ, first at row %ld column %ld: %0*x, expected %0*x",
                found[0].count, long(row), long(column), int(2 * sizeof(Bits)), unsigned(own),
                int(2 * sizeof(Bits)), unsigned(right));
  }
  if (found[1].count > 0) {
    std::printf(": %llu elements outside of y were written, first at row %ld column %ld",
                found[1].count, long(found[1].first) / stride, long(found[1].first) % stride);
  }
  std::printf("\n");
}

template <class Bits>
void compare(CheckCounts& counts, const Operands& o, int64_t m, const Output& output,
             const Fp8GemmConfig& c, const Bits* expected) {
  static DeviceArray<Difference> differences(2);
  Difference found[2] = {{0, ~0ull}, {0, ~0ull}};
  SLX_CUDA(cudaMemcpy(differences.data(), found, sizeof(found), cudaMemcpyHostToDevice));
  const int64_t stride = o.n + output.gap;
  compare_product<<<1024, 256>>>(reinterpret_cast<const Bits*>(o.y.data()), stride,
                                 m * stride + kGuard, expected, m, o.n, differences.data());
  SLX_CUDA(cudaDeviceSynchronize());
  SLX_CUDA(cudaMemcpy(found, differences.data(), sizeof(found), cudaMemcpyDeviceToHost));
  if (counts.fails(found[0].count + found[1].count == 0)) report(o, m, output, c, expected, found);
}

// Compares the first m rows of the product under configuration c with the expected rows.
inline void check_output(CheckCounts& counts, const Operands& o, int64_t m, const Output& output,
                         const Fp8GemmConfig& c, bool overlap) {
  const bool f32 = output.type == GemmOutput::kF32;
  const int64_t stride = o.n + output.gap;
  SLX_CUDA(cudaMemset(o.y.data(), 0xff, static_cast<size_t>(m * stride + kGuard) * (f32 ? 4 : 2)));
  Fp8GemmArgs args = o.args(m, o.y.data());
  args.overlap_previous = overlap;
  args.output = output.type;
  args.y_stride = output.gap == 0 ? 0 : stride;
  if (o.input != nullptr) o.input->replace(args);
  if (const char* fault = launch_fp8_gemm(args, c, nullptr)) {
    if (counts.fails(false)) {
      std::printf("FAIL launch of ");
      print_config(c);
      std::printf(": %s\n", fault);
    }
    return;
  }
  if (f32) {
    compare(counts, o, m, output, c, reinterpret_cast<const uint32_t*>(o.sums.data()));
  } else {
    compare(counts, o, m, output, c, reinterpret_cast<const uint16_t*>(o.expected.data()));
  }
}

// Both types of y. Alternates between the gaps, so that over the shapes each variant stores with
// all of them.
inline void check_product(CheckCounts& counts, const Operands& o, int64_t m, const Fp8GemmConfig& c,
                          bool overlap) {
  static int turn = 0;
  check_output(counts, o, m, {GemmOutput::kBf16, turn / 3 % 2 == 0 ? 0 : 8}, c, overlap);
  check_output(counts, o, m, {GemmOutput::kF32, turn / 5 % 2 == 0 ? 0 : 4}, c, overlap);
  ++turn;
}

}  // namespace slimexx::kernels::testing
