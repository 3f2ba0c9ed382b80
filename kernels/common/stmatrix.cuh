// Stores accumulator fragments as bf16 to shared memory (PTX stmatrix).
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/bf16.cuh"
#include "kernels/common/mbarrier.cuh"

namespace slimexx::kernels {

// Byte offset of 16-byte chunk `chunk` of 128-byte row `row` in a tile with the 128-byte swizzle.
__device__ __forceinline__ uint32_t swizzled_offset(int row, int chunk) {
  return static_cast<uint32_t>(row * 128 + ((chunk ^ (row & 7)) << 4));
}

// Four 8x8 matrices; lane 8 i + r gives the address of row r of matrix i. Lane l's register of a
// matrix holds row l / 4, columns 2 (l % 4) and 2 (l % 4) + 1.
__device__ __forceinline__ void store_matrices(uint32_t address, uint32_t a, uint32_t b, uint32_t c,
                                               uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}

// Two matrices; lanes 0 to 15 give the addresses.
__device__ __forceinline__ void store_matrices(uint32_t address, uint32_t a, uint32_t b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(a),
               "r"(b)
               : "memory");
}

// Four matrices, each transposed by the store: lane l's register holds column l / 4, rows
// 2 (l % 4) and 2 (l % 4) + 1 of the stored matrix.
__device__ __forceinline__ void store_matrices_transposed(uint32_t address, uint32_t a, uint32_t b,
                                                          uint32_t c, uint32_t d) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
      "r"(a), "r"(b), "r"(c), "r"(d)
      : "memory");
}

// Two matrices; lanes 0 to 15 give the addresses.
__device__ __forceinline__ void store_matrices_transposed(uint32_t address, uint32_t a,
                                                          uint32_t b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(address),
               "r"(a), "r"(b)
               : "memory");
}

}  // namespace slimexx::kernels
