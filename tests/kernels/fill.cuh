// Guarded arrays of random operands.
#pragma once
#include <cuda_bf16.h>

#include <cstdint>

#include "tests/kernels/normal_values.cuh"
#include "tests/kernels/rows/rows_arrays.h"

namespace slimexx::kernels::testing {

// Fills the first `count` elements with normal numbers, times scale.
inline void fill(const Bf16Array& array, int64_t count, uint64_t seed, float scale = 1.0f) {
  if (count == 0) return;
  fill_normal<<<2048, 256>>>(reinterpret_cast<__nv_bfloat16*>(array.data()), count, seed, scale);
  SLX_CUDA(cudaGetLastError());
}

}  // namespace slimexx::kernels::testing
