// Shared memory of a cluster's thread blocks (cluster_rows.cu), and how they write to each other's
// shared memory.
#pragma once
#include "kernels/latent_attention/column_exchange.cuh"

namespace slimexx::kernels::latent_attention {

inline constexpr int kRound = 8;  // thread blocks per cluster, and key blocks per round
static_assert(kRound == kValueBoxes && kSegmentBlocks % kRound == 0);
// Threads that compute, and threads that load bf16 or FP8 keys.
inline constexpr int kClusterComputing = 128, kClusterLoading = 32, kClusterF8Loading = 128;
// Named barriers: the computing warps have read a round's keys, or its values.
inline constexpr int kKeysAreRead = 14, kValuesAreRead = 15;

template <int kRows>
struct ClusterShared {
  using Scratch = ColumnScratch<kRows>;
  static constexpr uint32_t kWeightBytes = kRows * 128;  // per key block; also per query box
  static constexpr uint32_t kSumBytes = kRows * 16;      // four pairs of chains per row
  static constexpr uint32_t kRowBytes = kRows * 4;       // one float per row
  static constexpr int kBarriers = 3 + 2 * kRound;
  static constexpr uint32_t kKeysAt = kBoxes * kWeightBytes;
  static constexpr uint32_t kValuesAt = kKeysAt + kTileBytes;
  static constexpr uint32_t kWeightsAt = kValuesAt + kRound * kBoxBytes;
  static constexpr uint32_t kSumsAt = kWeightsAt + kRound * kWeightBytes;
  static constexpr uint32_t kMaximaAt = kSumsAt + kRound * kSumBytes;
  static constexpr uint32_t kDecaysAt = kMaximaAt + kRound * kRowBytes;
  static constexpr uint32_t kRunningAt = kDecaysAt + kRound * kRowBytes;
  static constexpr uint32_t kOffsetsAt = kRunningAt + 2 * kRowBytes;
  static constexpr uint32_t kScratchAt = kOffsetsAt + kRowBytes;
  static constexpr uint32_t kBarriersAt = kScratchAt + Scratch::kBytes;
  static constexpr uint32_t kBytes = kBarriersAt + kBarriers * 8;
  static_assert(kBytes <= 232448 && kBarriersAt % 8 == 0 && kSumsAt % 16 == 0);
  uint32_t base;

  __device__ __forceinline__ uint32_t queries() const { return base; }
  __device__ __forceinline__ uint32_t keys() const { return base + kKeysAt; }
  // This thread block's columns of key block `i` of the round.
  __device__ __forceinline__ uint32_t values(int i) const {
    return base + kValuesAt + i * kBoxBytes;
  }
  // Weights [kRows][64] in bf16 of key block `i`.
  __device__ __forceinline__ uint32_t weights(int i) const {
    return base + kWeightsAt + i * kWeightBytes;
  }
  __device__ __forceinline__ uint32_t sums(int i) const { return base + kSumsAt + i * kSumBytes; }
  __device__ __forceinline__ uint32_t maxima(int i) const {
    return base + kMaximaAt + i * kRowBytes;
  }
  __device__ __forceinline__ uint32_t decays(int i) const {
    return base + kDecaysAt + i * kRowBytes;
  }
  // The rows' running maxima before a round.
  __device__ __forceinline__ uint32_t running(int round) const {
    return base + kRunningAt + round % 2 * kRowBytes;
  }
  // Softmax offsets of this block's key block; after join_sums the rows' sums.
  __device__ __forceinline__ uint32_t offsets() const { return base + kOffsetsAt; }
  __device__ __forceinline__ uint32_t scratch() const { return base + kScratchAt; }
  __device__ __forceinline__ uint32_t queries_full() const { return base + kBarriersAt; }
  __device__ __forceinline__ uint32_t keys_full() const { return base + kBarriersAt + 8; }
  __device__ __forceinline__ uint32_t maxima_full() const { return base + kBarriersAt + 16; }
  __device__ __forceinline__ uint32_t values_full(int i) const {
    return base + kBarriersAt + (3 + i) * 8;
  }
  __device__ __forceinline__ uint32_t weights_full(int i) const {
    return base + kBarriersAt + (3 + kRound + i) * 8;
  }
  // Called by one thread. Arrivals that complete a full barrier of keys, and of values.
  __device__ __forceinline__ void init(uint32_t of_keys = 1, uint32_t of_values = 1) const {
    for (int i = 0; i < kBarriers; ++i) {
      const bool values = i >= 3 && i < 3 + kRound;
      init_mbarrier(base + kBarriersAt + i * 8, i == 1 ? of_keys : values ? of_values : 1);
    }
    fence_mbarrier_init();
  }
};

__device__ __forceinline__ float load_shared(uint32_t address) {
  float x;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
  return x;
}
__device__ __forceinline__ void store_shared(uint32_t address, float x) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(x) : "memory");
}
// Stores `x` at the same address in thread block `rank` and counts the bytes at its `barrier`.
__device__ __forceinline__ void send_pair(uint32_t address, float2 x, uint32_t barrier,
                                          uint32_t rank) {
  asm volatile(
      "{\n"
      ".reg .b32 place, counter;\n"
      "mapa.shared::cluster.u32 place, %0, %4;\n"
      "mapa.shared::cluster.u32 counter, %3, %4;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [place], {%1, %2}, "
      "[counter];\n"
      "}\n" ::"r"(address),
      "f"(x.x), "f"(x.y), "r"(barrier), "r"(rank)
      : "memory");
}
// Copies to address `to` in thread block `rank` and counts the bytes at its `barrier`.
__device__ __forceinline__ void send_bytes(uint32_t to, uint32_t from, uint32_t bytes,
                                           uint32_t barrier, uint32_t rank) {
  asm volatile(
      "{\n"
      ".reg .b32 place, counter;\n"
      "mapa.shared::cluster.u32 place, %0, %4;\n"
      "mapa.shared::cluster.u32 counter, %3, %4;\n"
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [place], [%1], %2, "
      "[counter];\n"
      "}\n" ::"r"(to),
      "r"(from), "r"(bytes), "r"(barrier), "r"(rank)
      : "memory");
}

}  // namespace slimexx::kernels::latent_attention
