// The mathematics of one warpgroup for a tile of 8 or 16 query rows. Operands stand the other way
// round than in key_walk.cuh: S^T = K Q^T and O^T = V^T P^T, so that keys and head dimensions fill
// the 64 rows of a product and the few queries are its columns. A score or an output is the same
// chain of k16 steps either way, hence the same bits.
//
// A thread holds 4 keys of a block of each of its query rows: rows 8 g + 2 (l % 4) + c, c = 0, 1,
// keys 64 t + 16 w + 8 i + l / 4. Maxima go through shared memory. A row's sum is 8 chains of 16
// weights (row_arithmetic.cuh), each over keys of all four warps: the weights go through shared
// memory and thread 8 r + k adds up chain k of row r while the tensor cores take the values.
#pragma once
#include <cstdint>

#include "kernels/attention/key_stream.cuh"
#include "kernels/attention/row_arithmetic.cuh"
#include "kernels/common/cluster.cuh"
#include "kernels/common/stmatrix.cuh"
#include "kernels/common/wgmma.cuh"

namespace slimexx::kernels::attention {

// D[64, n] += A B^T, A with its 64 along the rows of its tile, both in shared memory.
__device__ __forceinline__ void wgmma_k16_turned(float (&d)[4], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, "
      "1, 1, 1, 1, 0;\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "l"(a), "l"(b));
}
__device__ __forceinline__ void wgmma_k16_turned(float (&d)[8], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, "
      "%8, %9, 1, 1, 1, 1, 0;\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7])
      : "l"(a), "l"(b));
}

template <int kHeadDim, int kRows>
struct FewRowsShared {
  static constexpr int kStages = 384 / kHeadDim;
  using Rings = KeyRings<kHeadDim, kStages>;
  static constexpr uint32_t kTileBytes = kRows * 128;  // all rows, 64 columns
  static constexpr uint32_t kQueriesAt = Rings::kBytes;
  static constexpr uint32_t kWeightsAt = kQueriesAt + Rings::kHalves * kTileBytes;  // two blocks'
  // Floats from chain to chain and from row to row: a warp's accesses meet different banks.
  static constexpr uint32_t kChainPitch = kBlock / 8 + 2;
  static constexpr uint32_t kRowPitch = 8 * kChainPitch + 4;
  static constexpr uint32_t kChainsAt = kWeightsAt + 4 * kTileBytes;
  static constexpr uint32_t kMaximaAt = kChainsAt + kRows * kRowPitch * 4;  // [warp][row]
  static constexpr uint32_t kDecaysAt = kMaximaAt + 4 * kRows * 4;
  static constexpr uint32_t kSumsAt = kDecaysAt + kRows * 4;
  static constexpr uint32_t kBarriersAt = kSumsAt + kRows * 4;
  static constexpr uint32_t kBytes = kBarriersAt + Rings::kBarrierBytes;
};

template <int kHeadDim, int kRows>
struct FewRowsWalk {
  using Layout = FewRowsShared<kHeadDim, kRows>;
  using Rings = typename Layout::Rings;
  static constexpr int kOwn = kRows / 4;  // query rows of a thread; the n-th is 8 (n / 2) + n % 2
  static constexpr int kParts = kHeadDim / 64;
  uint8_t* memory;
  uint32_t shared;  // address of memory
  float c;
  int rows;            // query rows there are
  int position[kOwn];  // of the thread's rows in their sequence; -1: no row
  float output[kParts][kRows / 2];
  float maximum[kOwn];
  float sum;  // of this thread's chain and its neighbour
  uint32_t weights_in_use = 0;
  RingCursor<Layout::kStages> key_cursor, value_cursor;

  __device__ __forceinline__ Rings rings() const { return {shared, shared + Layout::kBarriersAt}; }
  __device__ __forceinline__ float* floats(uint32_t at) const {
    return reinterpret_cast<float*>(memory + at);
  }
  __device__ __forceinline__ static int own_column() { return threadIdx.x % 4 * 2; }
  __device__ __forceinline__ static void release(uint32_t barrier) {
    if (threadIdx.x % 32 == 0) arrive(barrier);
  }

  __device__ __forceinline__ void issue_scores(float (&s)[2][kRows / 2]) const {
    const uint64_t keys = describe_swizzled_tile(rings().keys(key_cursor.stage));
    const uint64_t queries = describe_swizzled_tile(shared + Layout::kQueriesAt);
#pragma unroll
    for (int k = 0; k < kHeadDim / 16; ++k) {
      const uint64_t column = (k % 4) * kDescriptorStepK16;
#pragma unroll
      for (int t = 0; t < 2; ++t) {
        wgmma_k16(s[t], keys + ((k / 4 * Rings::kHalfBytes + t * 64 * 128) >> 4) + column,
                  queries + (k / 4 * Layout::kTileBytes >> 4) + column, k > 0);
      }
    }
    wgmma_commit();
  }

  __device__ __forceinline__ void issue_values() {
    const uint64_t values = describe_swizzled_tile(rings().values(value_cursor.stage));
    const uint64_t weights = describe_swizzled_tile(shared + Layout::kWeightsAt +
                                                    weights_in_use * 2 * Layout::kTileBytes);
#pragma unroll
    for (int k = 0; k < kBlock / 16; ++k) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        wgmma_k16_turned(
            output[part], values + ((part * Rings::kHalfBytes + k * 16 * 128) >> 4),
            weights + (k / 4 * Layout::kTileBytes >> 4) + (k % 4) * kDescriptorStepK16);
      }
    }
    wgmma_commit();
  }

  // Of each row of the thread, over the keys of the block.
  __device__ __forceinline__ void find_highest(const float (&s)[2][kRows / 2],
                                               float (&highest)[kOwn]) const {
    const int warp = threadIdx.x / 32;
#pragma unroll
    for (int n = 0; n < kOwn; ++n) {
      const int at = 4 * (n / 2) + n % 2;
      highest[n] = fmaxf(fmaxf(s[0][at], s[0][at + 2]), fmaxf(s[1][at], s[1][at + 2]));
#pragma unroll
      for (int lanes = 4; lanes < 32; lanes *= 2) {
        highest[n] = fmaxf(highest[n], __shfl_xor_sync(0xffffffffu, highest[n], lanes));
      }
    }
    float* maxima = floats(Layout::kMaximaAt) + own_column();
#pragma unroll
    for (int n = 0; n < kOwn; n += 2) {
      if (threadIdx.x % 32 < 4) {
        *reinterpret_cast<float2*>(maxima + warp * kRows + 4 * n) =
            make_float2(highest[n], highest[n + 1]);
      }
    }
    sync_named(1, 128);
#pragma unroll
    for (int n = 0; n < kOwn; n += 2) {
#pragma unroll
      for (int other = 0; other < 4; ++other) {
        const float2 x = *reinterpret_cast<const float2*>(maxima + other * kRows + 4 * n);
        highest[n] = other == 0 ? x.x : fmaxf(highest[n], x.x);
        highest[n + 1] = other == 0 ? x.y : fmaxf(highest[n + 1], x.y);
      }
    }
  }

  // Scores become weights: rounded for the next product, as they are for the sums.
  __device__ __forceinline__ void weigh(float (&s)[2][kRows / 2], int block, float (&decay)[kOwn]) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int first_key = block * kBlock + 16 * warp + lane / 4;
#pragma unroll
    for (int x = 0; x < kRows; ++x) {  // thread's key x / kOwn: t = x / kOwn / 2, i = x / kOwn % 2
      const int n = x % kOwn, i = x / kOwn % 2, t = x / kOwn / 2;
      float& score = s[t][4 * (n / 2) + 2 * i + n % 2];
      score = first_key + 64 * t + 8 * i <= position[n] ? score : minus_infinity();
    }
    float highest[kOwn];
    find_highest(s, highest);
    float offset[kOwn];
#pragma unroll
    for (int n = 0; n < kOwn; ++n) {
      const BlockScale scale = raise_maximum(maximum[n], highest[n], c);
      decay[n] = scale.decay;
      offset[n] = scale.offset;
    }
#pragma unroll
    for (int x = 0; x < kRows; ++x) {
      const int n = x % kOwn, i = x / kOwn % 2, t = x / kOwn / 2;
      float& score = s[t][4 * (n / 2) + 2 * i + n % 2];
      score = weigh_score(score, c, offset[n]);
    }
    store_weights(s);
    float* chain = floats(Layout::kChainsAt) + own_column() * Layout::kRowPitch +
                   lane / 4 * Layout::kChainPitch + 2 * warp;
#pragma unroll
    for (int n = 0; n < kOwn; ++n) {
      const int at = 4 * (n / 2) + n % 2;
#pragma unroll
      for (int t = 0; t < 2; ++t) {
        *reinterpret_cast<float2*>(chain + (8 * (n / 2) + n % 2) * Layout::kRowPitch + 8 * t) =
            make_float2(s[t][at], s[t][at + 2]);
      }
    }
    if (threadIdx.x < 4) {
#pragma unroll
      for (int n = 0; n < kOwn; n += 2) {
        *reinterpret_cast<float2*>(floats(Layout::kDecaysAt) + own_column() + 4 * n) =
            make_float2(decay[n], decay[n + 1]);
      }
    }
  }

  // P [rows][keys] in bf16, 64 keys a tile, as the second operand of the next product.
  __device__ __forceinline__ void store_weights(const float (&s)[2][kRows / 2]) {
    weights_in_use ^= 1;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int t = lane / 16, i = lane / 8 % 2;  // of the matrix whose row this lane addresses
    const uint32_t address = shared + Layout::kWeightsAt +
                             (weights_in_use * 2 + t) * Layout::kTileBytes +
                             swizzled_offset(lane % 8, 2 * warp + i);
#pragma unroll
    for (int g = 0; g < kRows / 8; ++g) {
      store_matrices_transposed(address + g * 1024, round_pair(s[0][4 * g], s[0][4 * g + 1]),
                                round_pair(s[0][4 * g + 2], s[0][4 * g + 3]),
                                round_pair(s[1][4 * g], s[1][4 * g + 1]),
                                round_pair(s[1][4 * g + 2], s[1][4 * g + 3]));
    }
  }

  __device__ __forceinline__ void add_weights() {
    if (static_cast<int>(threadIdx.x / 32) * 4 >= rows) return;
    const int row = threadIdx.x / 8;
    const float* chain =
        floats(Layout::kChainsAt) + row * Layout::kRowPitch + threadIdx.x % 8 * Layout::kChainPitch;
    float total = 0.0f;
#pragma unroll
    for (int j = 0; j < kBlock / 8; j += 2) {
      const float2 x = *reinterpret_cast<const float2*>(chain + j);
      total = __fadd_rn(total, x.x);
      total = __fadd_rn(total, x.y);
    }
    const float neighbour = __shfl_xor_sync(0xffffffffu, total, 1);
    sum = extend_sum(sum, floats(Layout::kDecaysAt)[row], total, neighbour);
  }

  // The sums of the thread's rows over all chains, as sum_over_quad adds them.
  __device__ __forceinline__ void gather_sums(float (&sums)[kOwn]) {
    float* shared_sums = floats(Layout::kSumsAt);
    if (static_cast<int>(threadIdx.x / 32) * 4 < rows) {
      sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 2));
      sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, 4));
      if (threadIdx.x % 8 == 0) shared_sums[threadIdx.x / 8] = sum;
    }
    sync_named(1, 128);
#pragma unroll
    for (int n = 0; n < kOwn; n += 2) {
      const float2 x = *reinterpret_cast<const float2*>(shared_sums + own_column() + 4 * n);
      sums[n] = x.x;
      sums[n + 1] = x.y;
    }
  }

  // What threads have stored is read by products of the whole warpgroup.
  __device__ __forceinline__ static void publish() {
    fence_shared_for_async();
    sync_named(1, 128);
  }

  __device__ __forceinline__ void pin_output() {
#pragma unroll
    for (int part = 0; part < kParts; ++part) pin_registers(output[part]);
  }

  __device__ __forceinline__ void finish_scores(float (&s)[2][kRows / 2]) {
    pin_registers(s[0]);
    pin_registers(s[1]);
    release(rings().keys_empty(key_cursor.stage));
    key_cursor.advance();
  }

  __device__ __forceinline__ void finish_values() {
    wgmma_wait<0>();
    pin_output();
    release(rings().values_empty(value_cursor.stage));
    value_cursor.advance();
  }

  // The blocks of one segment. On return outputs and maxima are the segment's; sums: gather_sums.
  __device__ __forceinline__ void walk(const KeyRange& range) {
    float s[2][kRows / 2], decay[kOwn];
#pragma unroll
    for (int n = 0; n < kOwn; ++n) maximum[n] = minus_infinity();
#pragma unroll
    for (int x = 0; x < kParts * kRows / 2; ++x) output[x / (kRows / 2)][x % (kRows / 2)] = 0.0f;
    sum = 0.0f;
    int block = range.first_block;
    wait(rings().keys_full(key_cursor.stage), key_cursor.parity);
    wgmma_fence();
    issue_scores(s);
    wgmma_wait<0>();
    finish_scores(s);
    weigh(s, block, decay);
    publish();
    while (++block < range.last_block) {
      wait(rings().keys_full(key_cursor.stage), key_cursor.parity);
      pin_output();
      wgmma_fence();
      issue_scores(s);
      wait(rings().values_full(value_cursor.stage), value_cursor.parity);
      wgmma_fence();
      issue_values();
      add_weights();
      wgmma_wait<1>();
      finish_scores(s);
      weigh(s, block, decay);
      finish_values();
#pragma unroll
      for (int x = 0; x < kParts * kRows / 2; ++x) {
        const int register_of = x % (kRows / 2);
        float& value = output[x / (kRows / 2)][register_of];
        value = __fmul_rn(value, decay[register_of / 4 * 2 + register_of % 2]);
      }
      publish();
    }
    wait(rings().values_full(value_cursor.stage), value_cursor.parity);
    const int present = range.keys - (range.last_block - 1) * kBlock;
    if (present < kBlock) {
      rings().clear_values(value_cursor.stage, present);
      publish();
    }
    pin_output();
    wgmma_fence();
    issue_values();
    add_weights();
    finish_values();
  }
};

}  // namespace slimexx::kernels::attention
