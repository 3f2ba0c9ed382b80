// The consumer of query_gradients.cuh: one warpgroup's dQ of 64 queries over the keys up to these
// queries. Also the layout of shared memory.
#pragma once
#include <cstdint>

#include "kernels/attention/row_arithmetic.cuh"
#include "kernels/attention_backward/items.cuh"
#include "kernels/attention_backward/tile_reader.cuh"
#include "kernels/common/operand.cuh"

namespace slimexx::kernels::attention_gradient::query_walk {

using namespace attention;
using Problem = attention_gradient::Problem;

inline constexpr int kStages = 4;

template <int kHeadDim>
struct Shared {
  using Ring = TileRing<kHeadDim, kStages>;
  // Per warpgroup: queries, output gradients, and staging for the result.
  static constexpr uint32_t kGroupBytes = 3 * Ring::kTileBytes;
  static constexpr uint32_t kRingAt = 2 * kGroupBytes;
  static constexpr uint32_t kRingBarriersAt = kRingAt + Ring::kBytes;
  // Two barriers per warpgroup: rows full, rows empty.
  static constexpr uint32_t kRowsFullAt = kRingBarriersAt + Ring::kBarrierBytes;
  static constexpr uint32_t kItemsAt = (kRowsFullAt + 32 + 15) / 16 * 16;
  static constexpr uint32_t kBytes = kItemsAt + ItemQueue::kBytes;
};

// State and loop of one warpgroup.
template <int kHeadDim>
struct QueryWalk {
  const Problem& problem;
  TileReader<Shared<kHeadDim>> tiles;
  uint32_t q[kHeadDim / 4], dout[kHeadDim / 4];
  float negative_lse[2], delta[2];
  float dq[kHeadDim / 2];
  float s[32], dp[32];
  uint32_t ds[16];

  // The first of the thread's two rows; the second is 8 rows later.
  static __device__ __forceinline__ int row_of_thread() {
    return static_cast<int>(threadIdx.x % 128) / 32 * 16 + static_cast<int>(threadIdx.x % 32) / 4;
  }

  // Loads 64 rows from shared memory as A fragments.
  __device__ __forceinline__ void read_operand(uint32_t (&rows)[kHeadDim / 4],
                                               uint32_t buffer) const {
    const int lane = threadIdx.x % 32;
    const int row = static_cast<int>(threadIdx.x % 128) / 32 * 16 + lane % 16;
#pragma unroll
    for (int k = 0; k < kHeadDim / 16; ++k) {
      const int chunk = (k % 4 * 2 + lane / 16) ^ (row % 8);
      const uint32_t from = buffer + k / 4 * kBoxBytes + row * 128 + chunk * 16;
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(rows[4 * k]), "=r"(rows[4 * k + 1]), "=r"(rows[4 * k + 2]),
                     "=r"(rows[4 * k + 3])
                   : "r"(from)
                   : "memory");
    }
  }

  __device__ __forceinline__ void read_log_sums(const Item& item, int first_row) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = first_row + row_of_thread() + 8 * i;
      negative_lse[i] = minus_infinity();
      if (row >= item.length) continue;
      const int64_t token = item.first_token + row;
      negative_lse[i] = __fmul_rn(problem.lse[token * problem.query_heads + item.head], -kLog2E);
    }
  }

  // Computes D = dout . out, and stores D and negative_lse for key_gradients. The outputs come
  // through the ring before the keys.
  __device__ __forceinline__ void multiply_outputs(const Item& item, int first_row, int group) {
    tiles.await_next();
    uint32_t out[kHeadDim / 4];
    read_operand(out, group == 0 ? tiles.next_first() : tiles.next_second());
    tiles.drop_next();
    delta[0] = delta[1] = 0.0f;
#pragma unroll
    for (int i = 0; i < kHeadDim / 4; ++i) {
      float& sum = delta[i % 2];
      sum = __fmaf_rn(widen_low(out[i]), widen_low(dout[i]), sum);
      sum = __fmaf_rn(widen_high(out[i]), widen_high(dout[i]), sum);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      delta[i] = __fadd_rn(delta[i], __shfl_xor_sync(0xffffffffu, delta[i], 1));
      delta[i] = __fadd_rn(delta[i], __shfl_xor_sync(0xffffffffu, delta[i], 2));
      const int row = first_row + row_of_thread() + 8 * i;
      if (row >= item.length) delta[i] = 0.0f;
      const int64_t at = item.head * problem.padded_tokens + item.padded + row;
      if (threadIdx.x % 4 != 0) continue;
      problem.delta[at] = delta[i];
      problem.negative_lse[at] = negative_lse[i];
    }
  }

  __device__ __forceinline__ void issue_scores(float (&d)[32], const uint32_t (&rows)[kHeadDim / 4],
                                               uint32_t tile) const {
    const Operand columns(tile, 0);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kHeadDim / 16; ++k) {
      wgmma_k16(d, rows + 4 * k, columns.at(k / 4 * kBoxBytes + k % 4 * 32), k > 0);
    }
    wgmma_commit();
  }

  __device__ __forceinline__ void issue_sum(uint32_t tile) {
    const Operand keys(tile, kBoxBytes);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kTile / 16; ++k)
      wgmma_k16_transposed(dq, ds + 4 * k, keys.at(k * 16 * 128));
    wgmma_commit();
  }

  __device__ __forceinline__ void weigh(bool diagonal) {
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      s[i] = exp2_approx(__fmaf_rn(s[i], problem.c, negative_lse[i / 2 % 2]));
    }
    if (diagonal) {
      const int lane = threadIdx.x % 32;
      const int query = static_cast<int>(threadIdx.x % 128) / 32 * 16 + lane / 4 - 2 * (lane % 4);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (8 * j + i % 2 > query + i / 2 * 8) s[4 * j + i] = 0.0f;
        }
      }
    }
  }

  __device__ __forceinline__ void differentiate() {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const float d = delta[i % 2];
      ds[i] = pack_bf16(__fmul_rn(s[2 * i], __fsub_rn(dp[2 * i], d)),
                        __fmul_rn(s[2 * i + 1], __fsub_rn(dp[2 * i + 1], d)));
    }
  }

  // One tile. On entry `s` holds the current tile's weights; the previous tile's dQ and this tile's
  // dP are in flight.
  __device__ __forceinline__ void step(bool next_diagonal) {
    wgmma_wait<0>();
    pin_registers(dp);
    tiles.release_previous();
    differentiate();
    tiles.await_next();
    issue_scores(s, q, tiles.next_first());
    issue_sum(tiles.first());
    issue_scores(dp, dout, tiles.next_second());
    tiles.advance();
    wgmma_wait<2>();
    pin_registers(s);
    weigh(next_diagonal);
  }

  // Walks `count` > 0 tiles; the last tile is on the diagonal.
  __device__ __forceinline__ void walk(int count) {
#pragma unroll
    for (float& value : dq) value = 0.0f;
    pin_registers(dq);
    tiles.await_next();
    issue_scores(s, q, tiles.next_first());
    issue_scores(dp, dout, tiles.next_second());
    tiles.begin();
    wgmma_wait<1>();
    pin_registers(s);
    weigh(count == 1);
    for (int tile = 1; tile < count; ++tile) step(tile + 1 == count);
    wgmma_wait<0>();
    pin_registers(dp);
    tiles.release_previous();
    differentiate();
    issue_sum(tiles.first());
    wgmma_wait<0>();
    pin_registers(dq);
    tiles.release_current();
  }
};

}  // namespace slimexx::kernels::attention_gradient::query_walk
