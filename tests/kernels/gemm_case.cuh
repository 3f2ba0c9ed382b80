// A case of the matrix product y = x w^T (+ bias): sizes and operands. Shared by the checks and
// benchmarks of the plain product and of the product with SwiGLU as epilogue.
#pragma once
#include <cmath>
#include <cstdint>

#include "slimexx/kernels/gemm.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/wide_values.cuh"

namespace slimexx::kernels::testing {

struct GemmCase {
  int64_t m, n, k;
  bool has_bias = false;
  Values values = Values::kNormal;
  float spread = 1.0f;  // the standard deviation of y, if values are normal
  uint64_t seed = 20;
  int64_t copies =
      1;  // copies of the weights, with different values; timings need several times L2
};

struct GemmOperands {
  explicit GemmOperands(const GemmCase& c)
      : m(c.m),
        n(c.n),
        k(c.k),
        copies(c.copies),
        values(c.values),
        x(m * k),
        w(copies * n * k),
        bias(n),
        bias_pointer(c.has_bias ? bias.data() : nullptr) {
    fill_values<<<2048, 256>>>(x.data(), x.count(), k, values, false, c.seed, 1.0f);
    fill_values<<<2048, 256>>>(w.data(), w.count(), k, values, true, c.seed + 1,
                               c.spread / std::sqrt(static_cast<float>(k)));
    fill_normal<<<64, 256>>>(bias.data(), bias.count(), c.seed + 2, c.spread);
    SLX_CUDA(cudaDeviceSynchronize());
  }
  // Arguments for the product of the first `rows` rows with the first copy of the weights.
  GemmArgs args(int64_t rows, void* y) const {
    return {x.data(), w.data(), bias_pointer, y, rows, n, k};
  }
  double operations() const { return 2.0 * double(m) * double(n) * double(k); }

  int64_t m, n, k, copies;
  Values values;
  DeviceArray<__nv_bfloat16> x, w, bias;
  const __nv_bfloat16* bias_pointer;
};

}  // namespace slimexx::kernels::testing
