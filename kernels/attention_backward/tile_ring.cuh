// A ring of tile pairs in shared memory: queries and output gradients, or keys and values. A tile
// is kTile rows of one head, in boxes of 64 columns with the 128-byte swizzle. One warp loads;
// every computing warp releases a stage once.
#pragma once
#include <cstdint>

#include "kernels/attention_backward/problem.cuh"
#include "kernels/common/tensor_map.cuh"
#include "kernels/common/tma.cuh"
#include "kernels/common/warp_release.cuh"

namespace slimexx::kernels::attention_gradient {

inline constexpr uint32_t kBoxBytes = kTile * 128;

template <int kHeadDim, int kStages>
struct TileRing {
  static constexpr int kStageCount = kStages;
  static constexpr int kHalves = kHeadDim / kBoxColumns;
  static constexpr uint32_t kTileBytes = kHalves * kBoxBytes;
  static constexpr uint32_t kBytes = kStages * 2 * kTileBytes;
  static constexpr uint32_t kBarrierBytes = (2 * kStages + 1) * 8;

  uint32_t buffers, barriers;  // shared addresses

  __device__ __forceinline__ uint32_t first(uint32_t stage) const {
    return buffers + stage * 2 * kTileBytes;
  }
  __device__ __forceinline__ uint32_t second(uint32_t stage) const {
    return first(stage) + kTileBytes;
  }
  __device__ __forceinline__ uint32_t full(uint32_t stage) const { return barriers + stage * 8; }
  __device__ __forceinline__ uint32_t empty(uint32_t stage) const {
    return barriers + (kStages + stage) * 8;
  }
  // Barrier for the loads of a partial pair: the loading warp waits for this barrier, clears the
  // rows past the sequence's end, and then completes the stage's full barrier.
  __device__ __forceinline__ uint32_t landed() const { return barriers + 2 * kStages * 8; }

  __device__ __forceinline__ void init(uint32_t consumer_warps) const {
    for (uint32_t stage = 0; stage < kStages; ++stage) {
      init_mbarrier(full(stage), 1);
      init_mbarrier(empty(stage), consumer_warps * kArrivalsPerWarp);
    }
    init_mbarrier(landed(), 1);
  }
};

// Source of a pair: one head of two tensors, and the first row in each.
struct TilePair {
  const CUtensorMap& first_map;
  const CUtensorMap& second_map;
  int head, first_row, second_row;
};

// Run by the loading warp.
template <int kHeadDim, int kStages>
struct TileLoader {
  using Ring = TileRing<kHeadDim, kStages>;
  Ring ring;
  RingCursor<kStages> cursor;
  uint32_t landed_parity = 0;

  // Zeroes the rows past the sequence's end, which belong to the next sequence. Their weights are
  // 0, but 0 times an infinity or a NaN would be NaN.
  __device__ __forceinline__ void clear_rows(int present) const {
    const int chunks = (kTile - present) * 8;  // 16-byte chunks per box
    for (int box = 0; box < 2 * Ring::kHalves; ++box) {
      const uint32_t from = ring.first(cursor.stage) + box * kBoxBytes + present * 128;
      for (int chunk = threadIdx.x % 32; chunk < chunks; chunk += 32) {
        asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(from + chunk * 16), "r"(0)
                     : "memory");
      }
    }
    fence_shared_for_async();
    __syncwarp();
  }

  // Loads the next pair; `present`: number of the pair's first rows that belong to the sequence.
  // One lane calls `extra(stage, barrier)`, which must load `extra_bytes` more.
  template <class Extra>
  __device__ __forceinline__ void load(const TilePair& pair, int present, uint32_t extra_bytes,
                                       const Extra& extra) {
    const int lane = threadIdx.x % 32;
    kernels::wait(ring.empty(cursor.stage), cursor.parity ^ 1);
    const bool partial = present < kTile;
    const uint32_t full = ring.full(cursor.stage);
    const uint32_t barrier = partial ? ring.landed() : full;
    if (lane == 0) {
      expect_bytes(full, extra_bytes);
      arrive_expect_bytes(barrier, 2 * Ring::kTileBytes);
      extra(cursor.stage, full);
    }
    __syncwarp();
    if (lane < 2 * Ring::kHalves) {
      const bool first = lane < Ring::kHalves;
      load_box(ring.first(cursor.stage) + lane * kBoxBytes,
               first ? &pair.first_map : &pair.second_map, barrier,
               lane % Ring::kHalves * kBoxColumns, pair.head,
               first ? pair.first_row : pair.second_row);
    }
    if (partial) {
      kernels::wait(barrier, landed_parity);
      landed_parity ^= 1;
      clear_rows(present);
      if (lane == 0) kernels::arrive(full);
    }
    cursor.advance();
  }
};

}  // namespace slimexx::kernels::attention_gradient
