// The arithmetic of SwiGLU, h = g s u with s = 1 / (1 + e^-g): one for every kernel that computes
// it, so that all give the same bits.
#pragma once
#include <cuda_runtime.h>

namespace slimexx::kernels {

// sigmoid(g) and sigmoid(-g). The denominator stays within [1, 2], so neither side overflows.
struct Sigmoids {
  float of, of_negative;
};
__device__ __forceinline__ Sigmoids sigmoids(float g) {
  const float e = __expf(-fabsf(g));
  const float larger = __fdividef(1.0f, __fadd_rn(1.0f, e)), smaller = __fmul_rn(e, larger);
  return g >= 0.0f ? Sigmoids{larger, smaller} : Sigmoids{smaller, larger};
}

__device__ __forceinline__ float swiglu(float gate, float up) {
  return __fmul_rn(__fmul_rn(gate, sigmoids(gate).of), up);
}

}  // namespace slimexx::kernels
