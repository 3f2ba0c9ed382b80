// The arithmetic of SwiGLU, h = g s u with s = 1 / (1 + e^-g). All kernels use it, so that all give
// the same bits.
#pragma once
#include <cuda_runtime.h>

#include "kernels/common/exponential.cuh"

namespace slimexx::kernels {

// The hardware's approximate reciprocal; x must be neither tiny nor huge.
__device__ __forceinline__ float reciprocal(float x) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

// sigmoid(g) and sigmoid(-g), both from a denominator within [1, 2], so nothing overflows.
struct Sigmoids {
  float of, of_negative;
};
__device__ __forceinline__ Sigmoids sigmoids(float g) {
  const float e = exp_approx(-fabsf(g)), larger = reciprocal(__fadd_rn(1.0f, e));
  const float smaller = __fmul_rn(e, larger);
  return g >= 0.0f ? Sigmoids{larger, smaller} : Sigmoids{smaller, larger};
}

__device__ __forceinline__ float swiglu(float gate, float up) {
  return __fmul_rn(__fmul_rn(gate, sigmoids(gate).of), up);
}

}  // namespace slimexx::kernels
