// Random operands on the device.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

namespace slimexx::kernels::testing {

__device__ inline uint32_t mix_bits(uint64_t v) {
  v ^= v >> 33;
  v *= 0xff51afd7ed558ccdull;
  v ^= v >> 33;
  v *= 0xc4ceb9fe1a85ec53ull;
  v ^= v >> 33;
  return static_cast<uint32_t>(v);
}

// Independent normal numbers (Box-Muller), times scale.
static __global__ void fill_normal(__nv_bfloat16* out, int64_t count, uint64_t seed, float scale) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    const float u =
        (static_cast<float>(mix_bits(seed * 0x9e3779b97f4a7c15ull + 2 * i) >> 8) + 1) * 0x1p-24f;
    const float v =
        static_cast<float>(mix_bits(seed * 0x9e3779b97f4a7c15ull + 2 * i + 1)) * 0x1p-32f;
    out[i] = __float2bfloat16_rn(scale * sqrtf(-2 * logf(u)) * cospif(2 * v));
  }
}

}  // namespace slimexx::kernels::testing
