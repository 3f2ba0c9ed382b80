// Warpgroup matrix multiply (PTX wgmma): D[64, n] (+)= A[64, 16] B[n, 16]^T, bf16 in, fp32 out.
// Operands are in shared memory, in tiles of 128-byte rows with the 128-byte swizzle; A may be in
// registers instead.
//
// Accumulator layout: warp w of the warpgroup owns rows 16 w .. 16 w + 15. Register 4 j + 2 i + c
// of lane l holds row 16 w + l / 4 + 8 i, column 8 j + 2 (l % 4) + c. The registers of two
// neighbouring j, rounded pairwise to bf16, form an A operand in registers.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/mbarrier.cuh"

namespace slimexx::kernels {

// Descriptor of a tile of 128-byte rows (64 bf16) with the 128-byte swizzle that starts at a
// multiple of 1024 bytes. Eight rows form one swizzle atom, so the stride is 1024 bytes. Fields are
// in units of 16 bytes. `column_box_bytes`: the distance between boxes of 64 columns, for an
// operand whose M or N runs along the rows (MN-major).
constexpr uint32_t kSwizzledTileFields =
    1024 >> 4 | 1u << 30;  // upper half, the same for all tiles
template <class Tile>
__device__ __forceinline__ uint64_t describe_swizzled_tile(Tile tile,
                                                           uint32_t column_box_bytes = 0) {
  return static_cast<uint64_t>((shared_address(tile) & 0x3FFFF) >> 4) |
         (static_cast<uint64_t>(column_box_bytes >> 4) << 16) |
         (static_cast<uint64_t>(kSwizzledTileFields) << 32);
}

// Adds the constant upper half to the lower half of a descriptor, which holds the address.
__device__ __forceinline__ uint64_t complete_descriptor(uint32_t lower) {
  uint64_t descriptor;
  asm("mov.b64 %0, {%1, %2};" : "=l"(descriptor) : "r"(lower), "r"(kSwizzledTileFields));
  return descriptor;
}

// Descriptor units from one k16 step to the next inside a 128-byte row.
constexpr uint64_t kDescriptorStepK16 = 32 >> 4;

// Required before the first wgmma of a chain and after other code has accessed its registers.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Keeps the compiler from moving accumulator reads across the wait before it.
template <int kCount>
__device__ __forceinline__ void pin_registers(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// Lists of operand names %0 .. and of operands d[0] .. for the asm statements below.
#define SLX_NAMES2(t) "%" #t "0, %" #t "1"
#define SLX_NAMES4(t) SLX_NAMES2(t) ", %" #t "2, %" #t "3"
#define SLX_NAMES6(t) SLX_NAMES4(t) ", %" #t "4, %" #t "5"
#define SLX_NAMES8(t) SLX_NAMES6(t) ", %" #t "6, %" #t "7"
#define SLX_NAMES10(t) SLX_NAMES8(t) ", %" #t "8, %" #t "9"
#define SLX_TENS1 SLX_NAMES10() ", "
#define SLX_TENS2 SLX_TENS1 SLX_NAMES10(1) ", "
#define SLX_TENS3 SLX_TENS2 SLX_NAMES10(2) ", "
#define SLX_TENS4 SLX_TENS3 SLX_NAMES10(3) ", "
#define SLX_TENS5 SLX_TENS4 SLX_NAMES10(4) ", "
#define SLX_TENS6 SLX_TENS5 SLX_NAMES10(5) ", "
#define SLX_TENS7 SLX_TENS6 SLX_NAMES10(6) ", "
#define SLX_TENS9 SLX_TENS7 SLX_NAMES10(7) ", " SLX_NAMES10(8) ", "
#define SLX_TENS10 SLX_TENS9 SLX_NAMES10(9) ", "
#define SLX_TENS11 SLX_TENS10 SLX_NAMES10(10) ", "
#define SLX_TENS12 SLX_TENS11 SLX_NAMES10(11) ", "

#define SLX_REGS4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SLX_REGS8(i) SLX_REGS4(i), SLX_REGS4(i + 4)
#define SLX_REGS16(i) SLX_REGS8(i), SLX_REGS8(i + 8)
#define SLX_REGS32(i) SLX_REGS16(i), SLX_REGS16(i + 16)
#define SLX_REGS64(i) SLX_REGS32(i), SLX_REGS32(i + 32)
#define SLX_REGS128(i) SLX_REGS64(i), SLX_REGS64(i + 64)

#define SLX_ALL(...) __VA_ARGS__

// n: columns; names, regs: the two lists; a, b, p: names of the operands after the registers;
// turned: the transpose bits of A and B, 1 if M (or N) runs along the rows in shared memory.
#define SLX_WGMMA_TURNED(n, names, regs, a, b, p, turned)                               \
  asm volatile(                                                                         \
      "{\n"                                                                             \
      ".reg .pred accumulate;\n"                                                        \
      "setp.ne.b32 accumulate, " p                                                      \
      ", 0;\n"                                                                          \
      "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" names "}, " a ", " b \
      ", accumulate, 1, 1, " turned                                                     \
      ";\n"                                                                             \
      "}\n"                                                                             \
      : regs                                                                            \
      : "l"(desc_a), "l"(desc_b), "r"(static_cast<int>(accumulate)))

#define SLX_WGMMA(n, names, regs, a, b, p) \
  SLX_WGMMA_TURNED(n, SLX_ALL(names), SLX_ALL(regs), a, b, p, "0, 0")

// If `accumulate` is false, D is overwritten (the same bits as adding to zeros).
__device__ __forceinline__ void wgmma_k16(float (&d)[4], uint64_t desc_a, uint64_t desc_b,
                                          bool accumulate) {
  SLX_WGMMA(8, SLX_NAMES4(), SLX_ALL(SLX_REGS4(0)), "%4", "%5", "%6");
}
__device__ __forceinline__ void wgmma_k16(float (&d)[8], uint64_t desc_a, uint64_t desc_b,
                                          bool accumulate) {
  SLX_WGMMA(16, SLX_NAMES8(), SLX_ALL(SLX_REGS8(0)), "%8", "%9", "%10");
}
__device__ __forceinline__ void wgmma_k16(float (&d)[12], uint64_t desc_a, uint64_t desc_b,
                                          bool accumulate) {
  SLX_WGMMA(24, SLX_TENS1 SLX_NAMES2(1), SLX_ALL(SLX_REGS8(0), SLX_REGS4(8)), "%12", "%13", "%14");
}
__device__ __forceinline__ void wgmma_k16(float (&d)[16], uint64_t desc_a, uint64_t desc_b,
                                          bool accumulate) {
  SLX_WGMMA(32, SLX_TENS1 SLX_NAMES6(1), SLX_ALL(SLX_REGS16(0)), "%16", "%17", "%18");
}
__device__ __forceinline__ void wgmma_k16(float (&d)[20], uint64_t desc_a, uint64_t desc_b,
                                          bool accumulate) {
  SLX_WGMMA(40, SLX_TENS1 SLX_NAMES10(1), SLX_ALL(SLX_REGS16(0), SLX_REGS4(16)), "%20", "%21",
            "%22");
}
__device__ __forceinline__ void wgmma_k16(float (&d)[24], uint64_t desc_a, uint64_t desc_b,
                                          bool accumulate) {
  SLX_WGMMA(48, SLX_TENS2 SLX_NAMES4(2), SLX_ALL(SLX_REGS16(0), SLX_REGS8(16)), "%24", "%25",
            "%26");
}
__device__ __forceinline__ void wgmma_k16(float (&d)[32], uint64_t desc_a, uint64_t desc_b,
                                          bool accumulate) {
  SLX_WGMMA(64, SLX_TENS3 SLX_NAMES2(3), SLX_ALL(SLX_REGS32(0)), "%32", "%33", "%34");
}
__device__ __forceinline__ void wgmma_k16(float (&d)[36], uint64_t desc_a, uint64_t desc_b,
                                          bool accumulate) {
  SLX_WGMMA(72, SLX_TENS3 SLX_NAMES6(3), SLX_ALL(SLX_REGS32(0), SLX_REGS4(32)), "%36", "%37",
            "%38");
}
__device__ __forceinline__ void wgmma_k16(float (&d)[40], uint64_t desc_a, uint64_t desc_b,
                                          bool accumulate) {
  SLX_WGMMA(80, SLX_TENS3 SLX_NAMES10(3), SLX_ALL(SLX_REGS32(0), SLX_REGS8(32)), "%40", "%41",
            "%42");
}
__device__ __forceinline__ void wgmma_k16(float (&d)[48], uint64_t desc_a, uint64_t desc_b,
                                          bool accumulate) {
  SLX_WGMMA(96, SLX_TENS4 SLX_NAMES8(4), SLX_ALL(SLX_REGS32(0), SLX_REGS16(32)), "%48", "%49",
            "%50");
}
__device__ __forceinline__ void wgmma_k16(float (&d)[56], uint64_t desc_a, uint64_t desc_b,
                                          bool accumulate) {
  SLX_WGMMA(112, SLX_TENS5 SLX_NAMES6(5), SLX_ALL(SLX_REGS32(0), SLX_REGS16(32), SLX_REGS8(48)),
            "%56", "%57", "%58");
}
__device__ __forceinline__ void wgmma_k16(float (&d)[64], uint64_t desc_a, uint64_t desc_b,
                                          bool accumulate) {
  SLX_WGMMA(128, SLX_TENS6 SLX_NAMES4(6), SLX_ALL(SLX_REGS64(0)), "%64", "%65", "%66");
}
__device__ __forceinline__ void wgmma_k16(float (&d)[72], uint64_t desc_a, uint64_t desc_b,
                                          bool accumulate) {
  SLX_WGMMA(144, SLX_TENS7 SLX_NAMES2(7), SLX_ALL(SLX_REGS64(0), SLX_REGS8(64)), "%72", "%73",
            "%74");
}
__device__ __forceinline__ void wgmma_k16(float (&d)[80], uint64_t desc_a, uint64_t desc_b,
                                          bool accumulate) {
  SLX_WGMMA(160, SLX_TENS7 SLX_NAMES10(7), SLX_ALL(SLX_REGS64(0), SLX_REGS16(64)), "%80", "%81",
            "%82");
}
__device__ __forceinline__ void wgmma_k16(float (&d)[96], uint64_t desc_a, uint64_t desc_b,
                                          bool accumulate) {
  SLX_WGMMA(192, SLX_TENS9 SLX_NAMES6(9), SLX_ALL(SLX_REGS64(0), SLX_REGS32(64)), "%96", "%97",
            "%98");
}
__device__ __forceinline__ void wgmma_k16(float (&d)[104], uint64_t desc_a, uint64_t desc_b,
                                          bool accumulate) {
  SLX_WGMMA(208, SLX_TENS10 SLX_NAMES4(10), SLX_ALL(SLX_REGS64(0), SLX_REGS32(64), SLX_REGS8(96)),
            "%104", "%105", "%106");
}
__device__ __forceinline__ void wgmma_k16(float (&d)[112], uint64_t desc_a, uint64_t desc_b,
                                          bool accumulate) {
  SLX_WGMMA(224, SLX_TENS11 SLX_NAMES2(11), SLX_ALL(SLX_REGS64(0), SLX_REGS32(64), SLX_REGS16(96)),
            "%112", "%113", "%114");
}
__device__ __forceinline__ void wgmma_k16(float (&d)[128], uint64_t desc_a, uint64_t desc_b,
                                          bool accumulate) {
  SLX_WGMMA(256, SLX_TENS12 SLX_NAMES8(12), SLX_ALL(SLX_REGS128(0)), "%128", "%129", "%130");
}

// B is N-major: its N runs along the rows in shared memory.
__device__ __forceinline__ void wgmma_k16_turned_b(float (&d)[32], uint64_t desc_a, uint64_t desc_b,
                                                   bool accumulate) {
  SLX_WGMMA_TURNED(64, SLX_TENS3 SLX_NAMES2(3), SLX_ALL(SLX_REGS32(0)), "%32", "%33", "%34",
                   "0, 1");
}
__device__ __forceinline__ void wgmma_k16_turned_b(float (&d)[64], uint64_t desc_a, uint64_t desc_b,
                                                   bool accumulate) {
  SLX_WGMMA_TURNED(128, SLX_TENS6 SLX_NAMES4(6), SLX_ALL(SLX_REGS64(0)), "%64", "%65", "%66",
                   "0, 1");
}
__device__ __forceinline__ void wgmma_k16_turned_b(float (&d)[128], uint64_t desc_a,
                                                   uint64_t desc_b, bool accumulate) {
  SLX_WGMMA_TURNED(256, SLX_TENS12 SLX_NAMES8(12), SLX_ALL(SLX_REGS128(0)), "%128", "%129", "%130",
                   "0, 1");
}
// A is M-major and B is N-major.
__device__ __forceinline__ void wgmma_k16_turned(float (&d)[96], uint64_t desc_a, uint64_t desc_b,
                                                 bool accumulate) {
  SLX_WGMMA_TURNED(192, SLX_TENS9 SLX_NAMES6(9), SLX_ALL(SLX_REGS64(0), SLX_REGS32(64)), "%96",
                   "%97", "%98", "1, 1");
}
// SLX_WGMMA_TURNED with A in registers.
#define SLX_WGMMA_REGISTERS(n, names, regs, a_names, b, p, transpose, ...)                      \
  asm volatile(                                                                                 \
      "{\n"                                                                                     \
      ".reg .pred accumulate;\n"                                                                \
      "setp.ne.b32 accumulate, " p                                                              \
      ", 0;\n"                                                                                  \
      "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" names "}, {" a_names "}, " b \
      ", accumulate, 1, 1, " transpose                                                          \
      ";\n"                                                                                     \
      "}\n"                                                                                     \
      : regs                                                                                    \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(desc_b)__VA_OPT__(, ) __VA_ARGS__)

__device__ __forceinline__ void wgmma_k16(float (&d)[4], const uint32_t* a, uint64_t desc_b,
                                          bool accumulate) {
  SLX_WGMMA_REGISTERS(8, SLX_NAMES4(), SLX_ALL(SLX_REGS4(0)), "%4, %5, %6, %7", "%8", "%9", "0",
                      "r"(static_cast<int>(accumulate)));
}
__device__ __forceinline__ void wgmma_k16(float (&d)[8], const uint32_t* a, uint64_t desc_b,
                                          bool accumulate) {
  SLX_WGMMA_REGISTERS(16, SLX_NAMES8(), SLX_ALL(SLX_REGS8(0)), "%8, %9, %10, %11", "%12", "%13",
                      "0", "r"(static_cast<int>(accumulate)));
}
__device__ __forceinline__ void wgmma_k16(float (&d)[32], const uint32_t* a, uint64_t desc_b,
                                          bool accumulate) {
  SLX_WGMMA_REGISTERS(64, SLX_TENS3 SLX_NAMES2(3), SLX_ALL(SLX_REGS32(0)), "%32, %33, %34, %35",
                      "%36", "%37", "0", "r"(static_cast<int>(accumulate)));
}
// D += A B, with A in registers; B is N-major.
__device__ __forceinline__ void wgmma_k16_transposed(float (&d)[32], const uint32_t* a,
                                                     uint64_t desc_b) {
  SLX_WGMMA_REGISTERS(64, SLX_TENS3 SLX_NAMES2(3), SLX_ALL(SLX_REGS32(0)), "%32, %33, %34, %35",
                      "%36", "1", "1");
}
__device__ __forceinline__ void wgmma_k16_transposed(float (&d)[64], const uint32_t* a,
                                                     uint64_t desc_b) {
  SLX_WGMMA_REGISTERS(128, SLX_TENS6 SLX_NAMES4(6), SLX_ALL(SLX_REGS64(0)), "%64, %65, %66, %67",
                      "%68", "1", "1");
}
__device__ __forceinline__ void wgmma_k16_transposed(float (&d)[128], const uint32_t* a,
                                                     uint64_t desc_b) {
  SLX_WGMMA_REGISTERS(256, SLX_TENS12 SLX_NAMES8(12), SLX_ALL(SLX_REGS128(0)),
                      "%128, %129, %130, %131", "%132", "1", "1");
}

#undef SLX_WGMMA_REGISTERS
#undef SLX_WGMMA
#undef SLX_WGMMA_TURNED
#undef SLX_ALL
#undef SLX_REGS128
#undef SLX_REGS64
#undef SLX_REGS32
#undef SLX_REGS16
#undef SLX_REGS8
#undef SLX_REGS4
#undef SLX_TENS12
#undef SLX_TENS11
#undef SLX_TENS10
#undef SLX_TENS9
#undef SLX_TENS7
#undef SLX_TENS6
#undef SLX_TENS5
#undef SLX_TENS4
#undef SLX_TENS3
#undef SLX_TENS2
#undef SLX_TENS1
#undef SLX_NAMES10
#undef SLX_NAMES8
#undef SLX_NAMES6
#undef SLX_NAMES4
#undef SLX_NAMES2

}  // namespace slimexx::kernels
