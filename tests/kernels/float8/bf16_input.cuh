// x in bf16 for FP8 products that quantise it themselves. Shared by the checks and the benchmarks.
#pragma once
#include "tests/kernels/float8/operands.cuh"
#include "tests/kernels/wide_values.cuh"

namespace slimexx::kernels::testing {

struct Bf16InputCase {
  Values values = Values::kNormal;
  int64_t gap = 0;          // elements between rows, a multiple of 8
  bool has_faults = false;  // the middle row has a NaN, the last row an infinity
  uint64_t seed = 70;
};
inline constexpr Bf16InputCase kBf16Inputs[] = {{},
                                                {.values = Values::kExponents, .gap = 8},
                                                {.values = Values::kZeros, .has_faults = true},
                                                {.values = Values::kCancelling, .gap = 136},
                                                {.values = Values::kMassive, .has_faults = true}};

// As many rows of x as `o` has. Its e4m3 values and scales become their quantisation.
struct Bf16Input {
  explicit Bf16Input(const Float8Operands& o, const Bf16InputCase& c = {})
      : of(c), stride(o.k + c.gap), x(o.m * stride) {
    fill_values<<<512, 256>>>(x.data(), x.count(), stride, c.values, false, c.seed, 1.0f);
    if (c.has_faults) {
      set(o.m / 2 * stride + o.k / 2, 0xFFC1);
      set((o.m - 1) * stride + o.k - 1, 0x7F80);
    }
    const char* fault = launch_quantise_rows({.x = x.data(),
                                              .q = o.x.data(),
                                              .scales = o.x_scales.data(),
                                              .x_stride = stride,
                                              .m = o.m,
                                              .k = o.k},
                                             nullptr);
    if (fault != nullptr) {
      std::fprintf(stderr, "%s\n", fault);
      std::exit(2);
    }
    SLX_CUDA(cudaDeviceSynchronize());
  }
  void set(int64_t i, uint16_t bits) const {
    SLX_CUDA(cudaMemcpy(x.data() + i, &bits, 2, cudaMemcpyHostToDevice));
  }
  // Replaces the x of an Fp8GemmArgs or Fp8GroupedGemmArgs.
  template <class Args>
  void replace(Args& a) const {
    a.x = x.data();
    a.x_scales = nullptr;
    a.x_scale_stride = 0;
    a.x_is_bf16 = true;
    a.x_stride = of.gap == 0 ? 0 : stride;
  }

  Bf16InputCase of;
  int64_t stride;
  DeviceArray<__nv_bfloat16> x;
};

// The same tile with fewer tokens and rows.
inline Fp8GemmConfig shrink_tile(Fp8GemmConfig c, int rows) {
  c.tokens = c.columns - 5;
  c.rows -= rows;
  return c;
}

}  // namespace slimexx::kernels::testing
