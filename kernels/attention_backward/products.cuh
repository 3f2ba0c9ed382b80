// Matrix products of one warpgroup that the forward has no use for: 64 x 64 tiles of scores.
// Accumulator and operand layouts are those of kernels/attention/wgmma_bf16.cuh.
#pragma once
#include <cstdint>

#include "kernels/attention/wgmma_bf16.cuh"

namespace slimexx::kernels::attention_gradient {

// An operand in shared memory as kernels/attention/wgmma_bf16.cuh describes it. Only the lower word
// depends on the address, and moving on inside a tile never carries: one 32-bit addition.
struct Operand {
  uint32_t low;
  __device__ __forceinline__ Operand(uint32_t address, uint32_t column_box_bytes)
      : low(static_cast<uint32_t>(attention::describe_operand(address, column_box_bytes))) {
    // Or the compiler keeps a descriptor of every step of a loop's invariant operand in registers.
    asm volatile("" : "+r"(low));
  }
  __device__ __forceinline__ uint64_t at(uint32_t bytes) const {
    constexpr uint64_t kHigh = (uint64_t{1} << 62) | (uint64_t{1024 >> 4} << 32);
    return kHigh | (low + (bytes >> 4));
  }
};

#define SLX_SCORE_NAMES                                                                    \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
  "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define SLX_SCORE_REGISTERS(d)                                                                    \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
      "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),    \
      "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),  \
      "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]),  \
      "+f"(d[29]), "+f"(d[30]), "+f"(d[31])

// d[64 x 64] (+)= a b^T, both in shared memory, k along the rows; `add` false drops d first.
__device__ __forceinline__ void multiply_rows(float (&d)[32], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " SLX_SCORE_NAMES
      ", %32, %33, p, 1, 1, 0, 0;\n}"
      : SLX_SCORE_REGISTERS(d)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

// The same with a in registers.
__device__ __forceinline__ void multiply_rows(float (&d)[32], const uint32_t* a, uint64_t b,
                                              bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " SLX_SCORE_NAMES
      ", {%32, %33, %34, %35}, %36, p, 1, 1, 0;\n}"
      : SLX_SCORE_REGISTERS(d)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));
}

#undef SLX_SCORE_REGISTERS
#undef SLX_SCORE_NAMES

}  // namespace slimexx::kernels::attention_gradient
