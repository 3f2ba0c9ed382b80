// Operands of an FP8 product, and its reference. Shared by the check and the benchmark.
#pragma once
#include "tests/kernels/device_array.h"
#include "tests/kernels/float8/reference.cuh"

namespace slimexx::kernels::testing {

struct Float8Case {
  int64_t m, n, k;
  bool has_bias = false;
  F8Values values = F8Values::kNormal;
  int64_t gap =
      0;  // rows of w and of its scales are wider by this many elements, a multiple of 128
  int64_t copies = 1;  // of the weights, with different values
  int exponents = 4;   // range of the scales: 2^exponents
  uint64_t seed = 40;
};

struct Float8Operands {
  explicit Float8Operands(const Float8Case& c)
      : sizes(c),
        m(c.m),
        n(c.n),
        k(c.k),
        w_stride(k + c.gap),
        unit_stride(w_stride / 128),
        x(m * k),
        w(c.copies * n * w_stride),
        x_scales(k / 128 * fp8_scale_stride(m)),
        w_scales(c.copies * (n / 64) * unit_stride),
        bias(n) {
    fill_f8<<<2048, 256>>>(x.data(), x.count(), c.values, c.seed);
    fill_f8<<<2048, 256>>>(w.data(), w.count(), c.values, c.seed + 1);
    fill_scales(x_scales, c.seed + 2);
    fill_scales(w_scales, c.seed + 3);
    fill_normal<<<64, 256>>>(bias.data(), bias.count(), c.seed + 4, 1.0f);
    SLX_CUDA(cudaDeviceSynchronize());
  }
  void fill_scales(const DeviceArray<float>& scales, uint64_t seed) const {
    fill_f8_scales<<<static_cast<unsigned>((scales.count() + 255) / 256), 256>>>(
        scales.data(), scales.count(), sizes.exponents, seed);
  }
  // Arguments for the product of the first `rows` rows with a copy of the weights.
  Fp8GemmArgs args(int64_t rows, void* y, int64_t copy = 0) const {
    Fp8GemmArgs a;
    a.x = x.data();
    a.x_scales = x_scales.data();
    a.w = w.data() + copy * n * w_stride;
    a.w_scales = w_scales.data() + copy * (n / 64) * unit_stride;
    a.bias = sizes.has_bias ? bias.data() : nullptr;
    a.y = y;
    a.m = rows;
    a.n = n;
    a.k = k;
    a.x_scale_stride = rows == m ? 0 : fp8_scale_stride(m);
    a.w_stride = sizes.gap == 0 ? 0 : w_stride;
    a.w_scale_stride = sizes.gap == 0 ? 0 : unit_stride;
    return a;
  }
  double operations() const { return 2.0 * double(m) * double(n) * double(k); }

  Float8Case sizes;
  int64_t m, n, k, w_stride, unit_stride;
  DeviceArray<uint8_t> x, w;
  DeviceArray<float> x_scales, w_scales;
  DeviceArray<__nv_bfloat16> bias;
};

// Queues the reference product of all rows.
inline void multiply_reference(const Float8Operands& o, __nv_bfloat16* y, float* y_f32) {
  const dim3 grid(static_cast<unsigned>(o.n / 8), static_cast<unsigned>((o.m + 63) / 64));
  multiply_f8_in_order<<<grid, 128>>>(o.args(o.m, nullptr), y, y_f32);
  SLX_CUDA(cudaGetLastError());
}

}  // namespace slimexx::kernels::testing
