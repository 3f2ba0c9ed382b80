// Quantisation of a group of 128 activations by 8 neighbouring lanes of a warp, 16 elements each.
#pragma once
#include <cuda_runtime.h>

#include "kernels/common/bf16.cuh"
#include "kernels/float8/convert.cuh"
#include "slimexx/kernels/float8.h"

namespace slimexx::kernels {

constexpr int kLaneElements = 16;  // consecutive elements of a lane: 32 bytes of bf16, 16 of e4m3
constexpr int kGroupLanes = 128 / kLaneElements;
constexpr int kWarpGroups = 32 / kGroupLanes;

struct Elements {
  uint4 half[2];
  __device__ __forceinline__ uint32_t pair(int i) const {
    const uint4& h = half[i / 4];
    return i % 4 == 0 ? h.x : i % 4 == 1 ? h.y : i % 4 == 2 ? h.z : h.w;
  }
};

// The bits of the largest magnitude as a float. Patterns of magnitudes are ordered as the
// magnitudes are, and NaN is above infinity.
__device__ __forceinline__ uint32_t largest_magnitude(const Elements& e) {
  constexpr uint32_t kMagnitudes = 0x7FFF7FFF;
  uint32_t most = 0;
#pragma unroll
  for (int i = 0; i < kLaneElements / 2; i += 2) {
    most = __vimax3_u16x2(most, e.pair(i) & kMagnitudes, e.pair(i + 1) & kMagnitudes);
  }
  return max(most << 16, most & 0xFFFF0000);
}

__device__ __forceinline__ uint32_t pack_quad(const Elements& e, int i, float factor) {
  const uint32_t a = e.pair(2 * i), b = e.pair(2 * i + 1);
  return pack_f8(__fmul_rn(widen_low(a), factor), __fmul_rn(widen_high(a), factor)) |
         pack_f8(__fmul_rn(widen_low(b), factor), __fmul_rn(widen_high(b), factor)) << 16;
}

// All lanes of the warp must call it. Returns the lane's e4m3 bytes; `scale` becomes its group's.
__device__ __forceinline__ uint4 quantise_group(const Elements& e, float& scale) {
  uint32_t most = largest_magnitude(e);
#pragma unroll
  for (int step = 1; step < kGroupLanes; step *= 2) {
    most = max(most, __shfl_xor_sync(0xffffffff, most, step));
  }
  const tensor::F8RowScale row = tensor::f8_row_scale(__uint_as_float(most));
  scale = row.scale;
  return make_uint4(pack_quad(e, 0, row.factor), pack_quad(e, 1, row.factor),
                    pack_quad(e, 2, row.factor), pack_quad(e, 3, row.factor));
}

}  // namespace slimexx::kernels
