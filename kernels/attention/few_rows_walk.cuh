// Consumer loop of one warpgroup for a tile of 8 or 16 query rows. Operands are swapped relative to
// key_walk.cuh: S^T = K Q^T and O^T = V^T P^T, so that keys and head dimensions fill the 64 rows of
// a wgmma and the few queries are its columns. A score or an output is the same chain of k16 steps
// in both orders, hence has the same bits.
//
// The 64 rows of score product t are the t-th halves (8 keys) of the block's 8 pieces of 16 keys.
// Lane l of warp w holds query rows 8 g + 2 (l % 4) + c (c = 0, 1), and for each of them the 4 keys
// 32 w + 16 i + 8 t + l / 4 (i, t = 0, 1). Maxima go through shared memory. A row's sum is 8 chains
// of 16 weights, as in row_arithmetic.cuh. Each chain has keys of all four warps, so the weights go
// through shared memory: thread 8 r + k adds up chain k of row r while the tensor cores multiply by
// the values. FP8: keys and values are A operands in registers (few_rows_bytes.cuh).
#pragma once
#include <cstdint>

#include "kernels/attention/few_rows_bytes.cuh"
#include "kernels/attention/few_rows_shared.cuh"
#include "kernels/attention/row_arithmetic.cuh"
#include "kernels/common/cluster.cuh"

namespace slimexx::kernels::attention {

template <int kHeadDim, int kRows, bool kFp8>
struct FewRowsWalk {
  using Layout = FewRowsShared<kHeadDim, kRows, kFp8>;
  using Ring = typename Layout::Ring;
  static constexpr int kOwn = kRows / 4;  // query rows of a thread; the n-th is 8 (n / 2) + n % 2
  static constexpr int kParts = kHeadDim / 64;
  uint8_t* memory;
  uint32_t shared;  // address of memory
  float c;
  int rows;            // query rows that exist
  int position[kOwn];  // positions of the thread's rows in their sequence; -1: no row
  float output[kParts][kRows / 2];
  float maximum[kOwn];
  float sum;  // of this thread's chain and the neighbouring chain
  uint32_t weights_in_use = 0;
  Ring keys, values;

  __device__ __forceinline__ uint8_t* query_tiles() const { return memory + Layout::kQueriesAt; }
  __device__ __forceinline__ float* floats(uint32_t at) const {
    return reinterpret_cast<float*>(memory + at);
  }
  __device__ __forceinline__ static int own_column() { return threadIdx.x % 4 * 2; }

  __device__ __forceinline__ void issue_scores(float (&s)[2][kRows / 2]) {
    if constexpr (kFp8) {
      issue_scores_of_bytes<kHeadDim, kRows>(s, keys, shared + Layout::kQueriesAt);
      return;
    }
    const uint64_t rows_of_keys = describe_rows(keys.buffer(), Ring::kPieceBytes);
    const uint64_t queries = describe_swizzled_tile(shared + Layout::kQueriesAt);
#pragma unroll
    for (int k = 0; k < kHeadDim / 16; ++k) {
      const uint64_t column = (k % 4) * kDescriptorStepK16;
#pragma unroll
      for (int t = 0; t < 2; ++t) {
        wgmma_k16(s[t], rows_of_keys + ((k / 4 * Ring::kHalfBytes + t * 1024) >> 4) + column,
                  queries + (k / 4 * Layout::kTileBytes >> 4) + column, k > 0);
      }
    }
    wgmma_commit();
  }

  __device__ __forceinline__ void issue_values() {
    if constexpr (kFp8) {
      issue_values_of_bytes<kHeadDim, kRows>(
          output, values, shared + Layout::kWeightsAt + weights_in_use * 2 * Layout::kTileBytes);
      return;
    }
    const uint64_t rows_of_values = describe_swizzled_tile(values.buffer());
    const uint64_t weights = describe_swizzled_tile(shared + Layout::kWeightsAt +
                                                    weights_in_use * 2 * Layout::kTileBytes);
#pragma unroll
    for (int k = 0; k < kBlock / 16; ++k) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        wgmma_k16_turned_a(
            output[part], rows_of_values + ((k * Ring::kPieceBytes + part * Ring::kHalfBytes) >> 4),
            weights + (k / 4 * Layout::kTileBytes >> 4) + (k % 4) * kDescriptorStepK16);
      }
    }
    wgmma_commit();
  }

  // Turns scores into weights and stores them in shared memory: rounded to bf16 for the next
  // product, unrounded for the sums.
  __device__ __forceinline__ void weigh(float (&s)[2][kRows / 2], int block, float (&decay)[kOwn]) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int first_key = block * kBlock + 32 * warp + lane / 4;
#pragma unroll
    for (int x = 0; x < kRows; ++x) {  // x / kOwn: which of the thread's 4 keys
      const int n = x % kOwn, i = x / kOwn % 2, t = x / kOwn / 2;
      float& score = s[t][4 * (n / 2) + 2 * i + n % 2];
      score = first_key + 16 * i + 8 * t <= position[n] ? score : minus_infinity();
    }
    float highest[kOwn];
    find_highest<kRows>(s, floats(Layout::kMaximaAt), highest);
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
    weights_in_use ^= 1;
    store_weights<kRows>(s, shared + Layout::kWeightsAt + weights_in_use * 2 * Layout::kTileBytes);
    float* chain = floats(Layout::kChainsAt) + own_column() * Layout::kRowPitch +
                   lane / 4 * Layout::kChainPitch + 4 * warp;
#pragma unroll
    for (int n = 0; n < kOwn; ++n) {
      const int at = 4 * (n / 2) + n % 2;
      *reinterpret_cast<float4*>(chain + (8 * (n / 2) + n % 2) * Layout::kRowPitch) =
          make_float4(s[0][at], s[1][at], s[0][at + 2], s[1][at + 2]);
    }
    if (threadIdx.x < 4) {
#pragma unroll
      for (int n = 0; n < kOwn; n += 2) {
        *reinterpret_cast<float2*>(floats(Layout::kDecaysAt) + own_column() + 4 * n) =
            make_float2(decay[n], decay[n + 1]);
      }
    }
  }

  __device__ __forceinline__ void add_weights() {
    if (static_cast<int>(threadIdx.x / 32) * 4 >= rows) return;
    const int row = threadIdx.x / 8;
    const float* chain =
        floats(Layout::kChainsAt) + row * Layout::kRowPitch + threadIdx.x % 8 * Layout::kChainPitch;
    float total = 0.0f;
#pragma unroll
    for (int j = 0; j < kBlock / 8; j += 4) {
      const float4 x = *reinterpret_cast<const float4*>(chain + j);
      total = __fadd_rn(total, x.x);
      total = __fadd_rn(total, x.y);
      total = __fadd_rn(total, x.z);
      total = __fadd_rn(total, x.w);
    }
    const float neighbour = __shfl_xor_sync(0xffffffffu, total, 1);
    sum = extend_sum(sum, floats(Layout::kDecaysAt)[row], total, neighbour);
  }

  // Adds the chains of each row in the order of sum_over_quad; `sums` gets the sums of the thread's
  // rows.
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

  // Makes the threads' stores to shared memory visible to wgmma, for the whole warpgroup.
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
    if constexpr (!kFp8) keys.release();
  }

  __device__ __forceinline__ void finish_values() {
    wgmma_wait<0>();
    pin_output();
    if constexpr (!kFp8) values.release();
  }

  // Walks the blocks of one segment. On return `output` and `maximum` are those of the segment;
  // gather_sums gives the segment's sums.
  __device__ __forceinline__ void walk(const KeyRange& range) {
    float s[2][kRows / 2], decay[kOwn];
#pragma unroll
    for (int n = 0; n < kOwn; ++n) maximum[n] = minus_infinity();
#pragma unroll
    for (int x = 0; x < kParts * kRows / 2; ++x) output[x / (kRows / 2)][x % (kRows / 2)] = 0.0f;
    sum = 0.0f;
    int block = range.first_block;
    keys.await_block();
    wgmma_fence();
    issue_scores(s);
    wgmma_wait<0>();
    finish_scores(s);
    weigh(s, block, decay);
    publish();
    while (++block < range.last_block) {
      keys.await_block();
      pin_output();
      wgmma_fence();
      issue_scores(s);
      if constexpr (kFp8) finish_scores(s);
      values.await_block();
      wgmma_fence();
      issue_values();
      add_weights();
      if constexpr (!kFp8) {
        wgmma_wait<1>();
        finish_scores(s);
      }
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
    values.await_block();
    const int present = range.keys - (range.last_block - 1) * kBlock;
    if (present < kBlock) {
      values.clear_from(present);
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
