// Cached keys in FP8: loads that see what earlier kernels have just written, and dequantisation to
// bf16 (tensor::f8_key_scale). An e4m3 value is a bf16 value too, so the product with the bf16
// scale is the only rounding, for every scale.
#pragma once
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/common/bf16.cuh"

namespace slimexx::kernels {

// If `exists`, loads x from L2; otherwise x keeps its value. L1 is not read: its lines may be older
// than the writes of the previous kernel.
__device__ __forceinline__ void load_if(uint4& x, bool exists, const void* from) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %5, 0;\n"
      "@p ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];\n"
      "}\n"
      : "+r"(x.x), "+r"(x.y), "+r"(x.z), "+r"(x.w)
      : "l"(from), "r"(static_cast<int>(exists)));
}
__device__ __forceinline__ void load_if(float& x, bool exists, const void* from) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %2, 0;\n"
      "@p ld.global.cg.f32 %0, [%1];\n"
      "}\n"
      : "+f"(x)
      : "l"(from), "r"(static_cast<int>(exists)));
}
__device__ __forceinline__ void load_if(uint16_t& x, bool exists, const void* from) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %2, 0;\n"
      "@p ld.global.cg.u16 %0, [%1];\n"
      "}\n"
      : "+h"(x)
      : "l"(from), "r"(static_cast<int>(exists)));
}

// Exchanges the halves of x if `turn` is not 0. The instruction stays where it is written.
__device__ __forceinline__ uint4 turn_halves(const uint4& x, int turn) {
  uint4 y;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %8, 0;\n"
      "selp.b32 %0, %6, %4, p;\n"
      "selp.b32 %1, %7, %5, p;\n"
      "selp.b32 %2, %4, %6, p;\n"
      "selp.b32 %3, %5, %7, p;\n"
      "}\n"
      : "=&r"(y.x), "=&r"(y.y), "=&r"(y.z), "=&r"(y.w)
      : "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w), "r"(turn));
  return y;
}

// A scale in both halves of a register. Exact: scales are bf16 values.
__device__ __forceinline__ uint32_t pair_of(float scale) { return pack_bf16(scale, scale); }

// Four values of `quad` in memory order, times the scale of the pair `scales`.
__device__ __forceinline__ uint2 dequantise_quad(uint32_t quad, uint32_t scales) {
  uint32_t low, high;  // pairs of f16, which hold e4m3 values exactly
  asm("{\n"
      ".reg .b16 a, b;\n"
      "mov.b32 {a, b}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, a;\n"
      "cvt.rn.f16x2.e4m3x2 %1, b;\n"
      "}\n"
      : "=r"(low), "=r"(high)
      : "r"(quad));
  const auto scaled = [&](uint32_t halves) {
    const float2 x = __half22float2(*reinterpret_cast<const __half2*>(&halves));
    uint32_t product;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(pack_bf16(x.x, x.y)), "r"(scales));
    return product;
  };
  return make_uint2(scaled(low), scaled(high));
}

// Eight values: four of `first`, then four of `second`.
__device__ __forceinline__ uint4 dequantise_chunk(uint32_t first, uint32_t second,
                                                  uint32_t scales) {
  const uint2 a = dequantise_quad(first, scales), b = dequantise_quad(second, scales);
  return make_uint4(a.x, a.y, b.x, b.y);
}

__device__ __forceinline__ void store_chunk(uint32_t address, const uint4& chunk) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(chunk.x),
               "r"(chunk.y), "r"(chunk.z), "r"(chunk.w)
               : "memory");
}

}  // namespace slimexx::kernels
