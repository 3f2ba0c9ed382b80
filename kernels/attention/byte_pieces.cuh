// How FP8 pages come to shared memory. A block of 128 keys is 8 pieces of 16 keys, for any page
// size. One TMA load brings the e4m3 values of a piece, rows of kHeadDim bytes. Another load brings
// the scales of a page, or of a whole block if the page is larger.
#pragma once
#include <cstdint>

#include "kernels/attention/problem.cuh"
#include "kernels/common/tensor_map.cuh"
#include "kernels/common/tma.cuh"

namespace slimexx::kernels::attention {

inline constexpr int kPieceRows = 16;
inline constexpr uint32_t kBlockScaleBytes = kBlock * 2;

// Map of [rows, heads, head_dim] e4m3 values; `pitch` is the distance between rows. A box is
// kPieceRows rows of one head; its coordinates are 0, head, row. With `swizzled`, 16-byte chunks of
// eight neighbouring rows lie in different banks (byte_offset). False if the driver refuses.
inline bool encode_byte_pieces(CUtensorMap* map, const void* base, int64_t rows, int64_t heads,
                               int64_t head_dim, int64_t pitch, bool swizzled) {
  const CUtensorMapSwizzle swizzle = !swizzled         ? CU_TENSOR_MAP_SWIZZLE_NONE
                                     : head_dim == 128 ? CU_TENSOR_MAP_SWIZZLE_128B
                                                       : CU_TENSOR_MAP_SWIZZLE_64B;
  return encode_tensor<3>(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, base, {head_dim, heads, rows},
                          {head_dim, pitch}, {head_dim, 1, kPieceRows}, swizzle);
}

// Offset of 16-byte chunk `chunk` of row `row` in a swizzled piece.
template <int kHeadDim>
__device__ __forceinline__ uint32_t byte_offset(int row, int chunk) {
  return static_cast<uint32_t>(row * kHeadDim +
                               ((chunk ^ (row * kHeadDim / 128 % (kHeadDim / 16))) << 4));
}

// Called by all lanes of a warp: starts the loads of a block and arrives at `full`, which counts
// their bytes. `row`: the row in the pages of this lane's piece, or -1 if the lane has no piece.
// `piece`: where the lane's piece goes; `block_scales`: where the scales of the block go.
template <int kHeadDim>
__device__ __forceinline__ void load_byte_pieces(const Problem& problem, const CUtensorMap& map,
                                                 const uint16_t* scales, int head, int row,
                                                 uint32_t piece, uint32_t block_scales,
                                                 uint32_t full) {
  const int first = static_cast<int>(threadIdx.x % 32) * kPieceRows;
  const uint32_t scale_bytes = problem.box_rows * 2;
  const bool brings_scales = row >= 0 && first % problem.box_rows == 0;
  const uint32_t pieces = __popc(__ballot_sync(0xffffffffu, row >= 0));
  const uint32_t pages = __popc(__ballot_sync(0xffffffffu, brings_scales));
  if (threadIdx.x % 32 == 0) {
    arrive_expect_bytes(full, pieces * kPieceRows * kHeadDim + pages * scale_bytes);
  }
  __syncwarp();
  if (row >= 0) load_box(piece, &map, full, 0, head, row);
  if (brings_scales) {
    const int64_t page = row >> problem.page_shift, offset = row & ((1 << problem.page_shift) - 1);
    load_bytes(block_scales + first * 2,
               scales + ((page * problem.kv_heads + head) << problem.page_shift) + offset,
               scale_bytes, full);
  }
}

}  // namespace slimexx::kernels::attention
