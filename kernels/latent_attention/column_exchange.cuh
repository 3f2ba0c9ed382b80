// Exchanges a block's results among the four warps of a warpgroup, with swapped operands
// (column_form.cuh): maxima, and weights as the B operand of the next product.
#pragma once
#include "kernels/latent_attention/block_walk.cuh"

namespace slimexx::kernels::latent_attention {

// Scratch of a warpgroup: maxima [4 warps][kRows], then chains [kRows][8][8]. The pitches, in
// floats, are padded against bank conflicts.
template <int kRows>
struct ColumnScratch {
  static constexpr uint32_t kChainPitch = 8 + 2;
  static constexpr uint32_t kRowPitch = 8 * kChainPitch + 8;
  static constexpr uint32_t kChainsAt = 4 * kRows * 4;
  static constexpr uint32_t kBytes = kChainsAt + kRows * kRowPitch * 4;
};

// Sets `highest` to the highest score over the block's keys for each of the thread's rows.
// `maxima`: shared address of the warpgroup's ColumnScratch; `barrier`: its named barrier.
template <int kRows>
__device__ __forceinline__ void find_highest(const float (&scores)[kRows / 2], uint32_t maxima,
                                             int barrier, float (&highest)[kRows / 4]) {
  constexpr int kOwnRows = kRows / 4;
  maxima += threadIdx.x % 4 * 8;
  const int warp = static_cast<int>(threadIdx.x % 128) / 32;
#pragma unroll
  for (int n = 0; n < kOwnRows; ++n) {
    const int at = n / 2 * 4 + n % 2;
    highest[n] = fmaxf(scores[at], scores[at + 2]);
#pragma unroll
    for (int lanes = 4; lanes < 32; lanes *= 2) {
      highest[n] = fmaxf(highest[n], __shfl_xor_sync(0xffffffffu, highest[n], lanes));
    }
  }
  if (threadIdx.x % 32 < 4) {
#pragma unroll
    for (int n = 0; n < kOwnRows; n += 2) {
      asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(maxima + (warp * kRows + 4 * n) * 4),
                   "f"(highest[n]), "f"(highest[n + 1])
                   : "memory");
    }
  }
  sync_named(barrier, 128);
#pragma unroll
  for (int n = 0; n < kOwnRows; n += 2) {
#pragma unroll
    for (int other = 0; other < 4; ++other) {
      float low, high;
      asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                   : "=f"(low), "=f"(high)
                   : "r"(maxima + (other * kRows + 4 * n) * 4)
                   : "memory");
      highest[n] = other == 0 ? low : fmaxf(highest[n], low);
      highest[n + 1] = other == 0 ? high : fmaxf(highest[n + 1], high);
    }
  }
}

// Stores P [kRows][64 keys] in bf16 as the B operand of the next product.
template <int kRows>
__device__ __forceinline__ void store_weights(const float (&scores)[kRows / 2], uint32_t tile) {
  const int lane = threadIdx.x % 32, warp = static_cast<int>(threadIdx.x % 128) / 32;
  const uint32_t to = tile + swizzled_offset(lane % 8, warp * 2 + lane / 8 % 2);
#pragma unroll
  for (int g = 0; g < kRows / 8; ++g) {
    const float* s = scores + 4 * g;
    store_matrices_transposed(to + g * 1024, pack_bf16(s[0], s[1]), pack_bf16(s[2], s[3]));
  }
}

}  // namespace slimexx::kernels::latent_attention
