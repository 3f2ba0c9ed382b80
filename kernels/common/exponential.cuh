// The hardware's exponential, with an error of about 2 ulp. All kernels use it, so that an
// exponential has the same bits wherever it is computed. Results below the smallest normal float
// are 0.
#pragma once
#include <cuda_runtime.h>

namespace slimexx::kernels {

inline constexpr float kLog2E = 1.4426950408889634f;

__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float exp_approx(float x) { return exp2_approx(__fmul_rn(x, kLog2E)); }

}  // namespace slimexx::kernels
