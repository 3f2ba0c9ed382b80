// Cached keys in FP8: loads that see what earlier kernels have just written, and dequantisation to
// bf16 (tensor::f8_key_scale). A product of an e4m3 value and a bf16 scale is exact in f32, so each
// value is rounded once, for every scale.
#pragma once
#include <cstdint>

#include "kernels/common/bf16.cuh"
#include "kernels/float8/convert.cuh"

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

__device__ __forceinline__ uint32_t dequantise_pair(uint32_t pair, float scale) {
  const float2 x = widen_f8(pair);
  return pack_bf16(__fmul_rn(x.x, scale), __fmul_rn(x.y, scale));
}

// Eight values: four of `low`, then four of `high`.
__device__ __forceinline__ uint4 dequantise_chunk(uint32_t low, uint32_t high, float scale) {
  return make_uint4(dequantise_pair(low & 0xffff, scale), dequantise_pair(low >> 16, scale),
                    dequantise_pair(high & 0xffff, scale), dequantise_pair(high >> 16, scale));
}

__device__ __forceinline__ void store_chunk(uint32_t address, const uint4& chunk) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(chunk.x),
               "r"(chunk.y), "r"(chunk.z), "r"(chunk.w)
               : "memory");
}

}  // namespace slimexx::kernels
