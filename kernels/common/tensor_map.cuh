// Host side of bulk tensor copies: tensor maps of row-major matrices.
#pragma once
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace slimexx::kernels {

// The driver's encoder, found through the runtime so that nothing links to the driver library; null
// if the driver is too old to have it.
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

// Encodes the map of a tensor. `sizes` and `box` count elements, the contiguous dimension first;
// `pitches` are the strides, in elements, of all other dimensions. base must be 16-byte aligned and
// each pitch a multiple of 16 bytes. False if the driver refuses the map or has no encoder.
template <int kRank>
bool encode_tensor(CUtensorMap* map, CUtensorMapDataType type, int element_bytes, const void* base,
                   const int64_t (&sizes)[kRank], const int64_t (&pitches)[kRank - 1],
                   const int64_t (&box)[kRank],
                   CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B) {
  const auto encode = find_tensor_map_encoder();
  if (encode == nullptr) return false;
  cuuint64_t extents[kRank], strides[kRank - 1];
  cuuint32_t box_extents[kRank], steps[kRank];
  for (int i = 0; i < kRank; ++i) {
    extents[i] = static_cast<cuuint64_t>(sizes[i]);
    box_extents[i] = static_cast<cuuint32_t>(box[i]);
    steps[i] = 1;
    if (i + 1 < kRank) strides[i] = static_cast<cuuint64_t>(pitches[i] * element_bytes);
  }
  return encode(map, type, kRank, const_cast<void*>(base), extents, strides, box_extents, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

template <int kRank>
bool encode_bf16_tensor(CUtensorMap* map, const void* base, const int64_t (&sizes)[kRank],
                        const int64_t (&pitches)[kRank - 1], const int64_t (&box)[kRank]) {
  return encode_tensor<kRank>(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, base, sizes, pitches, box);
}

// A contiguous f32 tensor [blocks, rows, columns]; columns are a multiple of 4. Boxes of box_rows x
// kF32BoxColumns elements of one block; coordinates are column, row, block.
inline constexpr int kF32BoxColumns = 32;  // in a swizzled row of 128 bytes
inline bool encode_f32_blocks(CUtensorMap* map, const void* base, int64_t blocks, int64_t rows,
                              int64_t columns, int box_rows) {
  return encode_tensor<3>(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, base, {columns, rows, blocks},
                          {columns, rows * columns}, {kF32BoxColumns, box_rows, 1});
}

// A matrix in boxes of box_rows x kBoxColumns elements; `pitch` is its row stride.
inline bool encode_bf16_matrix(CUtensorMap* map, const void* base, int64_t rows, int64_t columns,
                               int64_t pitch, int box_rows) {
  return encode_bf16_tensor<2>(map, base, {columns, rows}, {pitch}, {kBoxColumns, box_rows});
}

// A matrix whose columns are a multiple of kBoxColumns. One copy moves `boxes` neighbouring boxes
// of box_rows x kBoxColumns elements and writes them one after the other. Coordinates are 0, row,
// index of the first box along the columns.
inline bool encode_bf16_boxes(CUtensorMap* map, const void* base, int64_t rows, int64_t columns,
                              int64_t pitch, int box_rows, int boxes) {
  return encode_bf16_tensor<3>(map, base, {kBoxColumns, rows, columns / kBoxColumns},
                               {pitch, kBoxColumns}, {kBoxColumns, box_rows, boxes});
}

// A [rows, heads, head_dim] tensor with contiguous heads and row stride `pitch`. Boxes of box_rows
// rows x kBoxColumns columns of one head; coordinates are column, head, row.
inline bool encode_bf16_heads(CUtensorMap* map, const void* base, int64_t rows, int64_t heads,
                              int64_t head_dim, int64_t pitch, int box_rows) {
  return encode_bf16_tensor<3>(map, base, {head_dim, heads, rows}, {head_dim, pitch},
                               {kBoxColumns, 1, box_rows});
}

}  // namespace slimexx::kernels
