// Warpgroup matrix multiply of FP8 (PTX wgmma): D[64, n] (+)= A[64, 32] B[n, 32]^T, e4m3 in, fp32
// out. Both operands are in shared memory, in tiles of 128-byte rows with the 128-byte swizzle, K
// along the rows, or in chunks. Descriptors and accumulator layout are those of wgmma.cuh; a step
// of 32 elements has as many bytes as a bf16 step of 16 (kDescriptorStepK16).
#pragma once
#include "kernels/common/wgmma.cuh"

namespace slimexx::kernels {

// The lower half of the descriptor of a tile in chunks of 16 bytes, without swizzle. Chunk c of row
// r is at 16 (c pitch + r), so a tile may begin at any row, and a step of 32 elements advances the
// lower half by 2 pitch. With a pitch below the rows of the tile, wgmma reads later chunks of other
// rows as the rows from `pitch` on.
template <class Tile>
__device__ __forceinline__ uint32_t describe_chunked_tile(Tile tile, int pitch) {
  return (shared_address(tile) & 0x3FFFF) >> 4 | static_cast<uint32_t>(pitch) << 16;
}
// Adds the upper half: the distance of eight rows.
__device__ __forceinline__ uint64_t complete_chunked_descriptor(uint32_t lower) {
  constexpr uint32_t kEightRows = 128 >> 4;
  return static_cast<uint64_t>(kEightRows) << 32 | lower;
}

// Lists of operand names %0 .. and of operands d[0] .. for the asm statements below.
#define SLX_F8_NAMES2(t) "%" #t "0, %" #t "1"
#define SLX_F8_NAMES4(t) SLX_F8_NAMES2(t) ", %" #t "2, %" #t "3"
#define SLX_F8_NAMES6(t) SLX_F8_NAMES4(t) ", %" #t "4, %" #t "5"
#define SLX_F8_NAMES8(t) SLX_F8_NAMES6(t) ", %" #t "6, %" #t "7"
#define SLX_F8_NAMES10(t) SLX_F8_NAMES8(t) ", %" #t "8, %" #t "9"
#define SLX_F8_TENS1 SLX_F8_NAMES10() ", "
#define SLX_F8_TENS2 SLX_F8_TENS1 SLX_F8_NAMES10(1) ", "
#define SLX_F8_TENS3 SLX_F8_TENS2 SLX_F8_NAMES10(2) ", "
#define SLX_F8_TENS4 SLX_F8_TENS3 SLX_F8_NAMES10(3) ", "
#define SLX_F8_TENS6 SLX_F8_TENS4 SLX_F8_NAMES10(4) ", " SLX_F8_NAMES10(5) ", "
#define SLX_F8_TENS9 \
  SLX_F8_TENS6 SLX_F8_NAMES10(6) ", " SLX_F8_NAMES10(7) ", " SLX_F8_NAMES10(8) ", "

#define SLX_F8_REGS4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SLX_F8_REGS8(i) SLX_F8_REGS4(i), SLX_F8_REGS4(i + 4)
#define SLX_F8_REGS16(i) SLX_F8_REGS8(i), SLX_F8_REGS8(i + 8)
#define SLX_F8_REGS32(i) SLX_F8_REGS16(i), SLX_F8_REGS16(i + 16)
#define SLX_F8_REGS64(i) SLX_F8_REGS32(i), SLX_F8_REGS32(i + 32)

#define SLX_F8_ALL(...) __VA_ARGS__

// n: columns; names, regs: the two lists; a, b, p: names of the operands after the registers.
#define SLX_F8_WGMMA(n, names, regs, a, b, p)                                           \
  asm volatile(                                                                         \
      "{\n"                                                                             \
      ".reg .pred accumulate;\n"                                                        \
      "setp.ne.b32 accumulate, " p                                                      \
      ", 0;\n"                                                                          \
      "wgmma.mma_async.sync.aligned.m64n" #n "k32.f32.e4m3.e4m3 {" names "}, " a ", " b \
      ", accumulate, 1, 1;\n"                                                           \
      "}\n"                                                                             \
      : regs                                                                            \
      : "l"(desc_a), "l"(desc_b), "r"(static_cast<int>(accumulate)))

// If `accumulate` is false, D is overwritten (the same bits as adding to zeros).
__device__ __forceinline__ void wgmma_f8_k32(float (&d)[4], uint64_t desc_a, uint64_t desc_b,
                                             bool accumulate) {
  SLX_F8_WGMMA(8, SLX_F8_NAMES4(), SLX_F8_ALL(SLX_F8_REGS4(0)), "%4", "%5", "%6");
}
__device__ __forceinline__ void wgmma_f8_k32(float (&d)[8], uint64_t desc_a, uint64_t desc_b,
                                             bool accumulate) {
  SLX_F8_WGMMA(16, SLX_F8_NAMES8(), SLX_F8_ALL(SLX_F8_REGS8(0)), "%8", "%9", "%10");
}
__device__ __forceinline__ void wgmma_f8_k32(float (&d)[12], uint64_t desc_a, uint64_t desc_b,
                                             bool accumulate) {
  SLX_F8_WGMMA(24, SLX_F8_TENS1 SLX_F8_NAMES2(1), SLX_F8_ALL(SLX_F8_REGS8(0), SLX_F8_REGS4(8)),
               "%12", "%13", "%14");
}
__device__ __forceinline__ void wgmma_f8_k32(float (&d)[16], uint64_t desc_a, uint64_t desc_b,
                                             bool accumulate) {
  SLX_F8_WGMMA(32, SLX_F8_TENS1 SLX_F8_NAMES6(1), SLX_F8_ALL(SLX_F8_REGS16(0)), "%16", "%17",
               "%18");
}
__device__ __forceinline__ void wgmma_f8_k32(float (&d)[24], uint64_t desc_a, uint64_t desc_b,
                                             bool accumulate) {
  SLX_F8_WGMMA(48, SLX_F8_TENS2 SLX_F8_NAMES4(2), SLX_F8_ALL(SLX_F8_REGS16(0), SLX_F8_REGS8(16)),
               "%24", "%25", "%26");
}
__device__ __forceinline__ void wgmma_f8_k32(float (&d)[32], uint64_t desc_a, uint64_t desc_b,
                                             bool accumulate) {
  SLX_F8_WGMMA(64, SLX_F8_TENS3 SLX_F8_NAMES2(3), SLX_F8_ALL(SLX_F8_REGS32(0)), "%32", "%33",
               "%34");
}
__device__ __forceinline__ void wgmma_f8_k32(float (&d)[48], uint64_t desc_a, uint64_t desc_b,
                                             bool accumulate) {
  SLX_F8_WGMMA(96, SLX_F8_TENS4 SLX_F8_NAMES8(4), SLX_F8_ALL(SLX_F8_REGS32(0), SLX_F8_REGS16(32)),
               "%48", "%49", "%50");
}
__device__ __forceinline__ void wgmma_f8_k32(float (&d)[64], uint64_t desc_a, uint64_t desc_b,
                                             bool accumulate) {
  SLX_F8_WGMMA(128, SLX_F8_TENS6 SLX_F8_NAMES4(6), SLX_F8_ALL(SLX_F8_REGS64(0)), "%64", "%65",
               "%66");
}
__device__ __forceinline__ void wgmma_f8_k32(float (&d)[96], uint64_t desc_a, uint64_t desc_b,
                                             bool accumulate) {
  SLX_F8_WGMMA(192, SLX_F8_TENS9 SLX_F8_NAMES6(9), SLX_F8_ALL(SLX_F8_REGS64(0), SLX_F8_REGS32(64)),
               "%96", "%97", "%98");
}

#undef SLX_F8_WGMMA
#undef SLX_F8_ALL
#undef SLX_F8_REGS64
#undef SLX_F8_REGS32
#undef SLX_F8_REGS16
#undef SLX_F8_REGS8
#undef SLX_F8_REGS4
#undef SLX_F8_TENS9
#undef SLX_F8_TENS6
#undef SLX_F8_TENS4
#undef SLX_F8_TENS3
#undef SLX_F8_TENS2
#undef SLX_F8_TENS1
#undef SLX_F8_NAMES10
#undef SLX_F8_NAMES8
#undef SLX_F8_NAMES6
#undef SLX_F8_NAMES4
#undef SLX_F8_NAMES2

}  // namespace slimexx::kernels
