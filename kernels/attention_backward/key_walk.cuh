// The consumer of key_gradients.cu: one warpgroup's dK and dV of 64 keys over the queries of one
// part. Also the layout of shared memory.
#pragma once
#include <cstdint>

#include "kernels/attention/row_arithmetic.cuh"
#include "kernels/attention_backward/items.cuh"
#include "kernels/attention_backward/tile_reader.cuh"
#include "kernels/common/operand.cuh"
#include "kernels/common/shared_pair.cuh"

namespace slimexx::kernels::attention_gradient::key_walk {

using namespace attention;
using Problem = attention_gradient::Problem;

inline constexpr int kStages = 4;
inline constexpr uint32_t kStatisticsBytes = kTile * 4;

template <int kHeadDim>
struct Shared {
  using Ring = TileRing<kHeadDim, kStages>;
  // Keys, then values; 64 rows of each per warpgroup.
  static constexpr uint32_t kValuesAt = 2 * Ring::kTileBytes;
  static constexpr uint32_t kRingAt = 2 * kValuesAt;
  // Per stage: negative_lse, delta.
  static constexpr uint32_t kStatisticsAt = kRingAt + Ring::kBytes;
  static constexpr uint32_t kRingBarriersAt = kStatisticsAt + kStages * 2 * kStatisticsBytes;
  static constexpr uint32_t kKeysFullAt = kRingBarriersAt + Ring::kBarrierBytes;
  static constexpr uint32_t kKeysEmptyAt = kKeysFullAt + 8;
  static constexpr uint32_t kItemsAt = (kKeysEmptyAt + 8 + 15) / 16 * 16;
  static constexpr uint32_t kBytes = kItemsAt + ItemQueue::kBytes;
};

// State and loop of one warpgroup.
template <int kHeadDim>
struct KeyWalk {
  using Layout = Shared<kHeadDim>;
  using Ring = typename Layout::Ring;
  static constexpr int kOutputs = kHeadDim / 2;
  static constexpr int kFetched = 4;  // pairs of statistics prefetched to registers
  const Problem& problem;
  uint32_t group;
  TileReader<Layout> tiles;
  float dk[kOutputs], dv[kOutputs];
  float s[32], dp[32];
  float2 fetched[kFetched];
  uint32_t operand[16];  // P, then overwritten by dS: 16 more registers would not fit

  __device__ __forceinline__ void issue_scores(float (&d)[32], uint32_t rows_at,
                                               uint32_t tile) const {
    const Operand rows(tiles.shared + rows_at + group * Ring::kTileBytes, 0), columns(tile, 0);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kHeadDim / 16; ++k) {
      const uint32_t at = k / 4 * kBoxBytes + k % 4 * 32;
      wgmma_k16(d, rows.at(at), columns.at(at), k > 0);
    }
    wgmma_commit();
  }

  __device__ __forceinline__ void issue_sums(float (&d)[kOutputs], uint32_t tile) const {
    const Operand b(tile, kBoxBytes);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      wgmma_k16_transposed(d, operand + 4 * k, b.at(k * 16 * 128));
    }
    wgmma_commit();
  }

  // Prefetches statistics of the current tile's first columns while products are in flight.
  __device__ __forceinline__ void fetch(uint32_t which) {
    const uint32_t from = statistics(which);
#pragma unroll
    for (int j = 0; j < kFetched; ++j) fetched[j] = read_pair(from + j * 32);
  }

  // Returns the statistics of column pair j and prefetches those of pair j + kFetched.
  __device__ __forceinline__ float2 next_statistic(uint32_t which, int j) {
    const float2 pair = fetched[j % kFetched];
    if (j + kFetched < 8)
      fetched[j % kFetched] = read_pair(statistics(which) + (j + kFetched) * 32);
    return pair;
  }

  // Shared address of the tile's negative_lse (0) or delta (1) at the thread's first columns.
  __device__ __forceinline__ uint32_t statistics(uint32_t which) const {
    return tiles.shared + Layout::kStatisticsAt + (tiles.stage * 2 + which) * kStatisticsBytes +
           threadIdx.x % 4 * 8;
  }

  __device__ __forceinline__ void weigh(bool diagonal) {
    const int lane = threadIdx.x % 32;
    const int key = static_cast<int>(threadIdx.x % 128) / 32 * 16 + lane / 4 - 2 * (lane % 4);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 offset = next_statistic(0, j);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = 4 * j + 2 * i;
        s[at] = exp2_approx(__fmaf_rn(s[at], problem.c, offset.x));
        s[at + 1] = exp2_approx(__fmaf_rn(s[at + 1], problem.c, offset.y));
      }
    }
    if (diagonal) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (8 * j + i % 2 < key + i / 2 * 8) s[4 * j + i] = 0.0f;
        }
      }
    }
  }

  __device__ __forceinline__ void round_weights() {
#pragma unroll
    for (int i = 0; i < 16; ++i) operand[i] = pack_bf16(s[2 * i], s[2 * i + 1]);
  }

  __device__ __forceinline__ void differentiate() {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 delta = next_statistic(1, j);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = 4 * j + 2 * i;
        const float low = widen_low(operand[at / 2]);
        const float high = widen_high(operand[at / 2]);
        operand[at / 2] = pack_bf16(__fmul_rn(low, __fsub_rn(dp[at], delta.x)),
                                    __fmul_rn(high, __fsub_rn(dp[at + 1], delta.y)));
      }
    }
  }

  // One tile. On entry the current tile's scores are ready; the previous tile's dK and this tile's
  // dP are in flight.
  __device__ __forceinline__ void step(bool diagonal, bool skip_before_next) {
    weigh(diagonal);
    wgmma_wait<0>();
    pin_registers(dp);
    tiles.release_previous();
    if (skip_before_next) tiles.skip();
    round_weights();
    issue_sums(dv, tiles.second());
    tiles.await_next();
    issue_scores(s, 0, tiles.next_first());
    fetch(1);
    wgmma_wait<1>();
    differentiate();
    issue_sums(dk, tiles.first());
    issue_scores(dp, Layout::kValuesAt, tiles.next_second());
    tiles.advance();
    fetch(0);
    wgmma_wait<2>();
    pin_registers(s);
  }

  __device__ __forceinline__ void last_step(bool diagonal) {
    weigh(diagonal);
    wgmma_wait<0>();
    pin_registers(dp);
    release(tiles.shared + Layout::kKeysEmptyAt);
    tiles.release_previous();
    round_weights();
    issue_sums(dv, tiles.second());
    fetch(1);
    wgmma_wait<0>();
    differentiate();
    issue_sums(dk, tiles.first());
    wgmma_wait<0>();
    pin_registers(dk);
    pin_registers(dv);
    tiles.release_current();
  }

  // Walks `count` tiles per head: those with queries at or after this warpgroup's keys.
  // `own_first`: the first of these tiles is on the diagonal. `has_skipped`: the second warpgroup
  // skips one tile per head, which only the first warpgroup needs.
  __device__ __forceinline__ void walk(int heads, int count, bool own_first = true,
                                       bool has_skipped = true) {
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) dk[i] = dv[i] = 0.0f;
    pin_registers(dk);
    pin_registers(dv);
    if (group != 0 && has_skipped) tiles.skip();
    tiles.await_next();
    issue_scores(s, 0, tiles.next_first());
    issue_scores(dp, Layout::kValuesAt, tiles.next_second());
    tiles.begin();
    fetch(0);
    wgmma_wait<1>();
    pin_registers(s);
    int left = count;  // tiles left of this head
    for (;;) {
      const bool diagonal = left == count && own_first;
      if (--left == 0) {
        if (--heads == 0) {
          last_step(diagonal);
          break;
        }
        left = count;
      }
      step(diagonal, left == count && group != 0 && has_skipped);
    }
  }
};

}  // namespace slimexx::kernels::attention_gradient::key_walk
