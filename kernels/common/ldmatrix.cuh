// Loads 8x8 matrices of 16-bit elements from shared memory to registers (PTX ldmatrix).
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace slimexx::kernels {

// Four matrices; lane 8 i + r gives the address of row r of matrix i, 16 bytes. In each, lane l's
// register gets row l / 4, elements 2 (l % 4) and 2 (l % 4) + 1.
__device__ __forceinline__ void load_matrices(uint32_t (&x)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(address)
               : "memory");
}

// The same, but lane l's register gets column l / 4, rows 2 (l % 4) and 2 (l % 4) + 1.
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&x)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(address)
               : "memory");
}

}  // namespace slimexx::kernels
