// Dequantises pairs of e4m3 by shifts and two bf16 products (tensor::f8_key_scale).
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace slimexx::kernels {

// An e4m3 value whose exponent and mantissa are moved to the place of bf16's is 2^-120 times the
// value as a bf16, also if it is subnormal. The first product is exact, and the second is rounded
// once. So this is RN_bf16(e4m3 * scale) for every scale, although 2^120 * scale may overflow.
__device__ __forceinline__ uint32_t multiply_pair(uint32_t a, uint32_t b) {
  uint32_t product;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}
__device__ __forceinline__ uint32_t scale_moved_pair(uint32_t moved, uint32_t scales) {
  constexpr uint32_t kTwoTo120 = 0x7B80'7B80;
  return multiply_pair(multiply_pair(moved, kTwoTo120), scales);
}

constexpr uint32_t kMovedMagnitudes = 0x07F0'07F0, kSigns = 0x8000'8000;

// Bytes 0 and 2 of `quad`, times `scales`; and bytes 1 and 3.
__device__ __forceinline__ uint32_t dequantise_even(uint32_t quad, uint32_t scales) {
  return scale_moved_pair((quad << 4 & kMovedMagnitudes) | (quad << 8 & kSigns), scales);
}
__device__ __forceinline__ uint32_t dequantise_odd(uint32_t quad, uint32_t scales) {
  return scale_moved_pair((quad >> 4 & kMovedMagnitudes) | (quad & kSigns), scales);
}

// The four values in order, times `scales`.
__device__ __forceinline__ uint2 dequantise_quad(uint32_t quad, uint32_t scales) {
  return make_uint2(dequantise_even(__byte_perm(quad, 0, 0x4140), scales),
                    dequantise_even(__byte_perm(quad, 0, 0x4342), scales));
}

// A bf16 scale in both halves.
__device__ __forceinline__ uint32_t repeat_scale(uint32_t scale) { return scale * 0x10001u; }

}  // namespace slimexx::kernels
