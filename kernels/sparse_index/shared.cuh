// The shape of a tile of scores, and the layout of shared memory.
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/common/mbarrier.cuh"
#include "kernels/common/warp_release.cuh"
#include "kernels/sparse_index/problem.cuh"

namespace slimexx::kernels::sparse_index {

// kHeads: heads per query, padded. kQueries: queries per tile. kBoxes: boxes of 64 elements per
// head.
template <int kHeadsPadded, int kTileQueries, int kColumnBoxes>
struct Shape {
  static constexpr int kHeads = kHeadsPadded, kQueries = kTileQueries, kBoxes = kColumnBoxes;
  static constexpr int kColumns = kHeads * kQueries;
  static_assert(kHeads % 8 == 0 && kColumns <= 256 && (kQueries == 1 || kQueries % 2 == 0));
};

template <class S>
struct Shared {
  static constexpr uint32_t kQueryBoxBytes = S::kColumns * 128;
  static constexpr uint32_t kQueryBytes = S::kBoxes * kQueryBoxBytes;
  static constexpr uint32_t kKeyBoxBytes = kBlock * 128;
  static constexpr uint32_t kKeyBytes = S::kBoxes * kKeyBoxBytes;
  static constexpr uint32_t kWeightBytes = S::kColumns * 4;
  static constexpr uint32_t kItemBytes = 32;
  static constexpr uint32_t kMost = 232448;
  static constexpr uint32_t kOthers = 2 * (kQueryBytes + kWeightBytes + kItemBytes) + 4 * 8;
  static constexpr uint32_t kStages = std::min<uint32_t>(12, (kMost - kOthers) / (kKeyBytes + 16));
  static constexpr uint32_t kKeysAt = 2 * kQueryBytes;
  static constexpr uint32_t kWeightsAt = kKeysAt + kStages * kKeyBytes;
  static constexpr uint32_t kItemsAt = kWeightsAt + 2 * kWeightBytes;
  static constexpr uint32_t kBarriersAt = kItemsAt + 2 * kItemBytes;
  static constexpr uint32_t kBytes = kBarriersAt + kStages * 16 + 4 * 8;
  static_assert(kBytes <= kMost && kQueryBoxBytes % 1024 == 0 && kStages >= 4);
  uint32_t base;

  // `n` counts the thread block's tiles (queries, weights, items) or its key blocks.
  __device__ __forceinline__ uint32_t queries(uint32_t n) const {
    return base + n % 2 * kQueryBytes;
  }
  __device__ __forceinline__ uint32_t weights(uint32_t n) const {
    return base + kWeightsAt + n % 2 * kWeightBytes;
  }
  __device__ __forceinline__ uint32_t item(uint32_t n) const {
    return base + kItemsAt + n % 2 * kItemBytes;
  }
  __device__ __forceinline__ uint32_t keys(uint32_t n) const {
    return base + kKeysAt + n % kStages * kKeyBytes;
  }
  __device__ __forceinline__ uint32_t keys_full(uint32_t n) const {
    return base + kBarriersAt + n % kStages * 16;
  }
  __device__ __forceinline__ uint32_t keys_empty(uint32_t n) const { return keys_full(n) + 8; }
  __device__ __forceinline__ uint32_t queries_full(uint32_t n) const {
    return base + kBarriersAt + kStages * 16 + n % 2 * 16;
  }
  __device__ __forceinline__ uint32_t queries_empty(uint32_t n) const {
    return queries_full(n) + 8;
  }
  // Parity of the barrier phase that completes with tile n, and with key block n.
  __device__ __forceinline__ static uint32_t tile_parity(uint32_t n) { return n / 2 % 2; }
  __device__ __forceinline__ static uint32_t block_parity(uint32_t n) { return n / kStages % 2; }

  // Called by one thread. `loading`: arrivals that complete a full barrier of keys.
  __device__ __forceinline__ void init(uint32_t loading = 1) const {
    for (uint32_t n = 0; n < kStages; ++n) {
      init_mbarrier(keys_full(n), loading);
      init_mbarrier(keys_empty(n), 4 * kArrivalsPerWarp);
    }
    for (uint32_t n = 0; n < 2; ++n) {
      init_mbarrier(queries_full(n), 1 + kArrivalsPerWarp);
      init_mbarrier(queries_empty(n), 8 * kArrivalsPerWarp);
    }
    fence_mbarrier_init();
  }
};

}  // namespace slimexx::kernels::sparse_index
