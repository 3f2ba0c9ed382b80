// Where few_rows.cu keeps what in shared memory, and the products over it.
#pragma once
#include <cstdint>

#include "kernels/attention/few_rows_load.cuh"
#include "kernels/common/wgmma.cuh"

namespace slimexx::kernels::attention {

// Descriptor of 64 rows of 128 bytes that lie in groups of 8, `stride` bytes apart.
__device__ __forceinline__ uint64_t describe_rows(uint32_t address, uint32_t stride) {
  return describe_swizzled_tile(address) + (static_cast<uint64_t>((stride - 1024) >> 4) << 32);
}

// D[64, n] += A B^T, A with its 64 along the rows of its tile, both in shared memory.
__device__ __forceinline__ void wgmma_k16_turned(float (&d)[4], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, "
      "1, 1, 1, 1, 0;\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "l"(a), "l"(b));
}
__device__ __forceinline__ void wgmma_k16_turned(float (&d)[8], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, "
      "%8, %9, 1, 1, 1, 1, 0;\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7])
      : "l"(a), "l"(b));
}

template <int kHeadDim, int kRows>
struct FewRowsShared {
  using Ring = BlockRing<kHeadDim>;
  static constexpr uint32_t kTileBytes = kRows * 128;  // all rows, 64 columns
  static constexpr uint32_t kQueriesAt = 2 * Ring::kBytes;
  static constexpr uint32_t kWeightsAt = kQueriesAt + kHeadDim / 64 * kTileBytes;  // two blocks'
  // Floats from chain to chain and from row to row: a warp's accesses meet different banks.
  static constexpr uint32_t kChainPitch = kBlock / 8 + 4;
  static constexpr uint32_t kRowPitch = 8 * kChainPitch + 4;
  static constexpr uint32_t kChainsAt = kWeightsAt + 4 * kTileBytes;
  static constexpr uint32_t kMaximaAt = kChainsAt + kRows * kRowPitch * 4;  // [warp][row]
  static constexpr uint32_t kDecaysAt = kMaximaAt + 4 * kRows * 4;
  static constexpr uint32_t kSumsAt = kDecaysAt + kRows * 4;
  static constexpr uint32_t kBarriersAt = kSumsAt + kRows * 4;
  static constexpr uint32_t kBytes = kBarriersAt + 2 * Ring::kBarrierBytes;
};

}  // namespace slimexx::kernels::attention
