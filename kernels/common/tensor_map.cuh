// Host side of bulk tensor copies: how the copy engine sees a row-major bf16 matrix.
#pragma once
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace slimexx::kernels {

// The driver's encoder, found through the runtime so that nothing links to the driver library; null
// where the driver is too old to know it.
inline auto find_tensor_map_encoder() {
  static const auto encode = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found{};
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry,
                                                               12000, cudaEnableDefault, &found);
    const bool usable = error == cudaSuccess && found == cudaDriverEntryPointSuccess;
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(usable ? entry : nullptr);
  }();
  return encode;
}

inline constexpr int kBoxColumns = 64;  // bf16 in a swizzled row of 128 bytes

// Boxes of box_rows x kBoxColumns elements under the 128-byte swizzle. base must be 16-byte aligned
// and `pitch`, the elements from row to row, a multiple of 8. False if the driver refuses the map
// or is too old to know it.
inline bool encode_bf16_matrix(CUtensorMap* map, const void* base, int64_t rows, int64_t columns,
                               int64_t pitch, int box_rows) {
  const auto encode = find_tensor_map_encoder();
  if (encode == nullptr) return false;
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(pitch) * 2};
  const cuuint32_t box[2] = {kBoxColumns, static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t steps[2] = {1, 1};
  return encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(base), sizes, strides,
                box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// The same of a matrix without gaps between rows, whose columns are a multiple of kBoxColumns:
// `boxes` neighbouring boxes behind each other; coordinates are 0, row, box along the columns.
inline bool encode_bf16_boxes(CUtensorMap* map, const void* base, int64_t rows, int64_t columns,
                              int box_rows, int boxes) {
  const auto encode = find_tensor_map_encoder();
  if (encode == nullptr) return false;
  const cuuint64_t sizes[3] = {kBoxColumns, static_cast<cuuint64_t>(rows),
                               static_cast<cuuint64_t>(columns / kBoxColumns)};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(columns) * 2, kBoxColumns * 2};
  const cuuint32_t box[3] = {kBoxColumns, static_cast<cuuint32_t>(box_rows),
                             static_cast<cuuint32_t>(boxes)};
  const cuuint32_t steps[3] = {1, 1, 1};
  return encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<void*>(base), sizes, strides,
                box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// The same of a [rows, heads, head_dim] tensor whose heads lie head_dim apart: boxes of box_rows
// rows of one head, kBoxColumns of its columns; coordinates are column, head, row.
inline bool encode_bf16_heads(CUtensorMap* map, const void* base, int64_t rows, int64_t heads,
                              int64_t head_dim, int64_t pitch, int box_rows) {
  const auto encode = find_tensor_map_encoder();
  if (encode == nullptr) return false;
  const cuuint64_t sizes[3] = {static_cast<cuuint64_t>(head_dim), static_cast<cuuint64_t>(heads),
                               static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(head_dim) * 2,
                                 static_cast<cuuint64_t>(pitch) * 2};
  const cuuint32_t box[3] = {kBoxColumns, 1, static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t steps[3] = {1, 1, 1};
  return encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<void*>(base), sizes, strides,
                box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace slimexx::kernels
