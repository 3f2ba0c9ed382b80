// Gradients of wide heads, as in latent attention: up to 256 elements per key and per value, with
// one kv head for every query head. Smaller heads are padded with zeros in shared memory, and
// results for the padding are not stored.
//
// The outputs of 64 rows fill the registers of a warpgroup, so two warpgroups work on one tile:
// warpgroup 0 forms the scores S and the weights P, warpgroup 1 forms dP and dS. P goes from
// warpgroup 0 to 1 through shared memory, already rounded to bf16.
//
// Barriers: the ring of tiles, two stages deep, full (1 arrival, the loading warp) and empty (8);
// the item's own rows, full (1) and empty (8); the queue of items. Named barriers: kReady + i, the
// weights in exchange buffer i have been written; kFree + i, they have been read.
#pragma once
#include "kernels/attention/row_arithmetic.cuh"
#include "kernels/attention_backward/items.cuh"
#include "kernels/attention_backward/launch.cuh"
#include "kernels/attention_backward/tile_reader.cuh"
#include "kernels/common/cluster.cuh"
#include "kernels/common/operand.cuh"
#include "kernels/common/sizes.h"

namespace slimexx::kernels::attention_gradient::wide {

using attention_gradient::Problem;

inline constexpr int kDim = 256;
inline constexpr int kStages = 2;
inline constexpr uint32_t kStatisticsBytes = kTile * 4;
inline constexpr int kReady = 1, kFree = 3;

struct Shared {
  using Ring = TileRing<kDim, kStages>;
  static constexpr uint32_t kRingAt = 2 * Ring::kTileBytes;  // after the item's rows of two tensors
  static constexpr uint32_t kExchangeAt = kRingAt + Ring::kBytes;
  static constexpr uint32_t kExchangeBytes = 128 * 16 * 4;
  static constexpr uint32_t kStatisticsAt = kExchangeAt + 2 * kExchangeBytes;  // two per stage
  static constexpr uint32_t kRingBarriersAt = kStatisticsAt + kStages * 2 * kStatisticsBytes;
  static constexpr uint32_t kRowsFullAt = kRingBarriersAt + Ring::kBarrierBytes;
  static constexpr uint32_t kRowsEmptyAt = kRowsFullAt + 8;
  static constexpr uint32_t kItemsAt = (kRowsEmptyAt + 8 + 15) / 16 * 16;
  static constexpr uint32_t kBytes = kItemsAt + ItemQueue::kBytes;
};
static_assert(Shared::kBytes <= 232448);

// Passes the weights of a tile from each thread of warpgroup 0 to the same thread of warpgroup 1;
// double buffered.
struct Exchange {
  uint32_t shared;
  uint32_t turn = 0;

  __device__ __forceinline__ uint32_t slot() const {
    return shared + Shared::kExchangeAt + turn * Shared::kExchangeBytes + threadIdx.x % 128 * 16;
  }
  // Called once by warpgroup 1: marks both buffers as free.
  __device__ __forceinline__ void open() const {
    arrive_named(kFree, 256);
    arrive_named(kFree + 1, 256);
  }
  __device__ __forceinline__ void write(const uint32_t (&p)[16]) {
    sync_named(kFree + turn, 256);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(slot() + i * 2048),
                   "r"(p[4 * i]), "r"(p[4 * i + 1]), "r"(p[4 * i + 2]), "r"(p[4 * i + 3])
                   : "memory");
    }
    arrive_named(kReady + turn, 256);
    turn ^= 1;
  }
  __device__ __forceinline__ void read(uint32_t (&p)[16]) {
    sync_named(kReady + turn, 256);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(p[4 * i]), "=r"(p[4 * i + 1]), "=r"(p[4 * i + 2]), "=r"(p[4 * i + 3])
                   : "r"(slot() + i * 2048)
                   : "memory");
    }
    arrive_named(kFree + turn, 256);
    turn ^= 1;
  }
};

// D = A B^T over kDim columns, both tiles of 64 rows in shared memory.
__device__ __forceinline__ void issue_scores(float (&d)[32], uint32_t rows_at, uint32_t tile) {
  const Operand rows(rows_at, 0), columns(tile, 0);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < kDim / 16; ++k) {
    const uint32_t at = k / 4 * kBoxBytes + k % 4 * 32;
    wgmma_k16(d, rows.at(at), columns.at(at), k > 0);
  }
  wgmma_commit();
}

// Sum += weights x tile; the tile has 64 rows and kDim columns.
__device__ __forceinline__ void issue_sum(float (&sum)[kDim / 2], const uint32_t (&weights)[16],
                                          uint32_t tile) {
  const Operand columns(tile, kBoxBytes);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < kTile / 16; ++k) {
    wgmma_k16_transposed(sum, weights + 4 * k, columns.at(k * 16 * 128));
  }
  wgmma_commit();
}

// The first of a thread's two rows of a tile; the second is 8 rows later.
__device__ __forceinline__ int row_of_thread() {
  return static_cast<int>(threadIdx.x % 128) / 32 * 16 + static_cast<int>(threadIdx.x % 32) / 4;
}

// Stores an item's rows, scaled and rounded, directly from registers. `width`: elements per head.
__device__ __forceinline__ void store_rows(const Item& item, const float (&x)[kDim / 2],
                                           uint16_t* out, int64_t stride, int width, float scale) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = item.block * kTile + row_of_thread() + 8 * i;
    if (row >= item.length) continue;
    uint16_t* to = out + static_cast<int64_t>(item.first_token + row) * stride +
                   static_cast<int64_t>(item.head) * width + threadIdx.x % 4 * 2;
#pragma unroll
    for (int j = 0; j < kDim / 8; ++j) {
      if (8 * j >= width) break;
      *reinterpret_cast<uint32_t*>(to + 8 * j) =
          pack_bf16(__fmul_rn(x[4 * j + 2 * i], scale), __fmul_rn(x[4 * j + 2 * i + 1], scale));
    }
  }
}

// With lists of keys: the mask of a tile for the thread's two rows, from Problem::seen_keys or
// seeing_queries. Without lists: empty.
template <bool kListed>
struct SeenColumns {
  const uint2* next = nullptr;  // next tile's mask of the thread's first row
  int step = 0, growth = 0;     // step: tile pairs to the next tile; growth: increase of step
  uint2 rows[2];

  // The item is a query tile; its walk starts at the first key tile.
  __device__ __forceinline__ void begin_keys(const Problem& problem, const Item& item) {
    next = problem.seen_keys + find_tile_pair(item, item.block, 0) * kTile + row_of_thread();
    step = 1;
  }
  // The item is a key tile; its walk starts at the query tile on the diagonal.
  __device__ __forceinline__ void begin_queries(const Problem& problem, const Item& item) {
    next = problem.seeing_queries + find_tile_pair(item, item.block, item.block) * kTile +
           row_of_thread();
    step = item.block + 1;
    growth = 1;
  }
  __device__ __forceinline__ void read_next() {
    rows[0] = next[0];
    rows[1] = next[8];
    next += static_cast<int64_t>(step) * kTile;
    step += growth;
  }
  // Shifts the masks so that the thread's columns start at bit 0. Call it before the first has(),
  // and as late as possible after read_next(), because align() waits for the loads.
  __device__ __forceinline__ void align() {
    const int first = 2 * static_cast<int>(threadIdx.x % 4);
#pragma unroll
    for (uint2& row : rows) {
      row.x >>= first;
      row.y >>= first;
    }
  }
  // The mask for the thread's row i and column 8 j + c.
  __device__ __forceinline__ bool has(int i, int j, int c) const {
    return ((j < 4 ? rows[i].x : rows[i].y) >> (j % 4 * 8 + c) & 1u) != 0;
  }
};
template <>
struct SeenColumns<false> {
  __device__ __forceinline__ void begin_keys(const Problem&, const Item&) {}
  __device__ __forceinline__ void begin_queries(const Problem&, const Item&) {}
  __device__ __forceinline__ void read_next() {}
  __device__ __forceinline__ void align() {}
};

// Loads the item's own rows of two tensors; keeps the parity of their barriers.
struct OwnRows {
  uint32_t shared;
  uint32_t parity = 1;

  __device__ __forceinline__ void load(const CUtensorMap& first, const CUtensorMap& second,
                                       const Item& item) {
    using Ring = Shared::Ring;
    const uint32_t full = shared + Shared::kRowsFullAt;
    wait(shared + Shared::kRowsEmptyAt, parity);
    parity ^= 1;
    const int lane = threadIdx.x % 32;
    if (lane == 0) arrive_expect_bytes(full, 2 * Ring::kTileBytes);
    __syncwarp();
    if (lane < 2 * Ring::kHalves) {
      load_box(shared + lane * kBoxBytes, lane < Ring::kHalves ? &first : &second, full,
               lane % Ring::kHalves * kBoxColumns, item.head,
               item.first_token + item.block * kTile);
    }
  }
};

__device__ __forceinline__ void init_barriers(uint32_t shared) {
  using Ring = Shared::Ring;
  Ring{shared + Shared::kRingAt, shared + Shared::kRingBarriersAt}.init(kComputingWarps);
  init_mbarrier(shared + Shared::kRowsFullAt, 1);
  init_mbarrier(shared + Shared::kRowsEmptyAt, kComputingWarps * kArrivalsPerWarp);
  ItemQueue{{shared + Shared::kItemsAt, {}}}.init(kComputingWarps);
  fence_mbarrier_init();
}

}  // namespace slimexx::kernels::attention_gradient::wide
