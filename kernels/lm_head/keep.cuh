// Stores the logits of an accumulator that are kept for the backward pass.
#pragma once
#include "kernels/gemm/tile.cuh"

namespace slimexx::kernels::lm_head {

// Stores the accumulator unchanged to p.y_base; first_row is the first row of this lane. The lanes
// of a pair exchange values, so that each stores 16 bytes: of every two groups of 8 columns the
// even lane stores the first, the odd lane the second. The stores are volatile, so that the
// compiler does not keep exchanged values in registers until later. The code must stay inlined: as
// a separate function it would spill registers. The stores are evict-first in L2, because nothing
// reads the logits before the pass has finished.
template <int kCount>
__device__ __forceinline__ void keep_logits(const GemmProblem& p, const float (&acc)[kCount],
                                            int first_row, int column) {
  const bool odd = threadIdx.x % 2 != 0;
  const int own_column = column + (odd ? 8 : 0) + threadIdx.x % 4 / 2 * 4;
  float* const low = static_cast<float*>(p.y_base) + first_row * p.y_stride + own_column;
  float* const high = low + 8 * p.y_stride;
#pragma unroll
  for (int j = 0; j < kCount / 4; j += 2) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float* const first = acc + 4 * j + 2 * i;
      const float* const second = first + 4;
      const float x = __shfl_xor_sync(0xffffffffu, odd ? first[0] : second[0], 1);
      const float y = __shfl_xor_sync(0xffffffffu, odd ? first[1] : second[1], 1);
      const float4 value =
          odd ? make_float4(x, y, second[0], second[1]) : make_float4(first[0], first[1], x, y);
      float* const to = (i == 0 ? low : high) + 8 * j;
      if (first_row + 8 * i < p.tokens && own_column + 8 * j < p.features) {
        asm volatile("st.global.cs.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(value.x),
                     "f"(value.y), "f"(value.z), "f"(value.w)
                     : "memory");
      }
    }
  }
}

}  // namespace slimexx::kernels::lm_head
