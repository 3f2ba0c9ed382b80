// The arithmetic of SwiGLU, h = g s u with s = 1 / (1 + e^-g): one for every kernel that computes
// it, so that all give the same bits.
#pragma once
#include <cuda_runtime.h>

namespace slimexx::kernels {

// e^x, 0 where that is below the smallest normal float.
__device__ __forceinline__ float exponential(float x) {
  constexpr float kLog2OfE = 1.44269504f;
  float e;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(__fmul_rn(x, kLog2OfE)));
  return e;
}

// Of a number that is neither tiny nor huge.
__device__ __forceinline__ float reciprocal(float x) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

// sigmoid(g) and sigmoid(-g). The denominator stays within [1, 2], so neither side overflows.
struct Sigmoids {
  float of, of_negative;
};
__device__ __forceinline__ Sigmoids sigmoids(float g) {
  const float e = exponential(-fabsf(g)), larger = reciprocal(__fadd_rn(1.0f, e));
  const float smaller = __fmul_rn(e, larger);
  return g >= 0.0f ? Sigmoids{larger, smaller} : Sigmoids{smaller, larger};
}

__device__ __forceinline__ float swiglu(float gate, float up) {
  return __fmul_rn(__fmul_rn(gate, sigmoids(gate).of), up);
}

}  // namespace slimexx::kernels
