// Bulk tensor copies (TMA) of boxes of rows x 64 columns from a [rows, heads, head_dim] bf16
// tensor. A box lands as rows of 128 bytes with the 128-byte swizzle, the layout wgmma reads.
#pragma once
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace slimexx::kernels::attention {

inline constexpr int kBoxColumns = 64;

// Host: describes the tensor; `row_stride` in elements, heads lie head_dim apart.
cudaError_t encode_rows(CUtensorMap* map, const void* base, int64_t rows, int64_t heads,
                        int64_t head_dim, int64_t row_stride, int box_rows);

#ifdef __CUDACC__
__device__ __forceinline__ void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

__device__ __forceinline__ void load_box(const CUtensorMap& map, uint32_t destination,
                                         uint32_t barrier, int column, int head, int row) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(destination),
      "l"(&map), "r"(barrier), "r"(column), "r"(head), "r"(row)
      : "memory");
}
#endif

}  // namespace slimexx::kernels::attention
