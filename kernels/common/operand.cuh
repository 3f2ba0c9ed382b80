// A wgmma operand in shared memory, for kernels that are short of registers.
#pragma once
#include <cstdint>

#include "kernels/common/wgmma.cuh"

namespace slimexx::kernels {

// The descriptor of kernels/common/wgmma.cuh. Only its lower word depends on the address, and a
// step within a tile never carries into the upper word, so a step costs one 32-bit addition.
struct Operand {
  uint32_t low;
  __device__ __forceinline__ Operand(uint32_t address, uint32_t column_box_bytes)
      : low(static_cast<uint32_t>(describe_swizzled_tile(address, column_box_bytes))) {
    // Without this statement the compiler keeps the descriptors of all steps of a loop in
    // registers.
    asm volatile("" : "+r"(low));
  }
  __device__ __forceinline__ uint64_t at(uint32_t bytes) const {
    constexpr uint64_t kHigh = (uint64_t{1} << 62) | (uint64_t{1024 >> 4} << 32);
    return kHigh | (low + (bytes >> 4));
  }
};

}  // namespace slimexx::kernels
