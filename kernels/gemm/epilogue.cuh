// Stores accumulators as y. The bias is added in fp32. bf16: one rounding, then staging in shared
// memory for wide stores. f32: stored from registers in whole 32-byte sectors. Both operand orders
// have the same arithmetic.
#pragma once
#include "kernels/common/cluster.cuh"
#include "kernels/common/stmatrix.cuh"
#include "kernels/common/tma.cuh"
#include "kernels/gemm/tile.cuh"

namespace slimexx::kernels {

// Bias of an even feature and the next one; zero past the last feature, where nothing is stored.
__device__ __forceinline__ float2 load_bias_pair(const GemmProblem& p, int feature) {
  if (feature >= p.features) return {0.0f, 0.0f};
  return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(p.bias + feature));
}

__device__ __forceinline__ float load_bias(const GemmProblem& p, int feature) {
  return feature < p.features ? __bfloat162float(p.bias[feature]) : 0.0f;
}

// Adds bias[feature]; features are the accumulator's columns.
template <int kCount>
__device__ __forceinline__ void add_column_bias(const GemmProblem& p, float (&acc)[kCount],
                                                int first_feature) {
  const int lane_column = 2 * (threadIdx.x % 4);
#pragma unroll
  for (int j = 0; j < kCount / 4; ++j) {
    const float2 bias = load_bias_pair(p, first_feature + 8 * j + lane_column);
    acc[4 * j] += bias.x;
    acc[4 * j + 1] += bias.y;
    acc[4 * j + 2] += bias.x;
    acc[4 * j + 3] += bias.y;
  }
}

// Adds bias[feature]; features are the accumulator's rows.
template <int kCount>
__device__ __forceinline__ void add_row_bias(const GemmProblem& p, float (&acc)[kCount],
                                             int first_feature) {
  const int row = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
  const float low = load_bias(p, first_feature + row);
  const float high = load_bias(p, first_feature + row + 8);
#pragma unroll
  for (int j = 0; j < kCount / 4; ++j) {
    acc[4 * j] += low;
    acc[4 * j + 1] += low;
    acc[4 * j + 2] += high;
    acc[4 * j + 3] += high;
  }
}

// Writes 64 accumulator rows x 8 kChunks columns to `buffer`, in swizzled rows of 128 bytes.
template <int kChunks>
__device__ __forceinline__ void stage_rows(const float* acc, uint8_t* buffer) {
  const int lane = threadIdx.x % 32;
  const int row = threadIdx.x % 128 / 32 * 16 + lane % 16;
#pragma unroll
  for (int j = 0; j + 1 < kChunks; j += 2) {
    const float* d = acc + 4 * j;
    store_matrices(shared_address(buffer) + swizzled_offset(row, j + lane / 16),
                   pack_bf16(d[0], d[1]), pack_bf16(d[2], d[3]), pack_bf16(d[4], d[5]),
                   pack_bf16(d[6], d[7]));
  }
  if constexpr (kChunks % 2 == 1) {
    const float* d = acc + 4 * (kChunks - 1);
    store_matrices(shared_address(buffer) + swizzled_offset(row, kChunks - 1),
                   pack_bf16(d[0], d[1]), pack_bf16(d[2], d[3]));
  }
}

// Copies `tokens` of the staged rows to y in 16-byte stores, without the chunks past the last
// feature.
template <int kChunks>
__device__ __forceinline__ void store_rows(const GemmProblem& p, const uint8_t* buffer, int token,
                                           int tokens, int feature) {
  const int chunks = min(kChunks, (p.features - feature) / 8);
#pragma unroll 4
  for (int i = threadIdx.x % 128; i < tokens * kChunks; i += 128) {
    const int row = i / kChunks, chunk = i % kChunks;
    if (chunk >= chunks) continue;
    const uint4 value = *reinterpret_cast<const uint4*>(buffer + swizzled_offset(row, chunk));
    __nv_bfloat16* y = static_cast<__nv_bfloat16*>(p.y_base) + int64_t{token + row} * p.y_stride;
    *reinterpret_cast<uint4*>(y + feature + 8 * chunk) = value;
  }
}

// Plain order: stores the first `tokens` of 64 rows, with kCount * 2 features. Full pieces of 64 x
// 64 use TMA stores, others ordinary stores.
template <int kBuffers, int kCount>
__device__ __forceinline__ void store_plain(const GemmProblem& p, const float (&acc)[kCount],
                                            uint8_t* staging, int barrier, int token, int tokens,
                                            int feature) {
  constexpr int kPieces = kCount / 32, kRestChunks = kCount / 4 % 8;
  const bool issuer = threadIdx.x % 128 == 0;
  const bool bulk = tokens == 64 || token + tokens == p.tokens;  // TMA clips at the end of y
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    uint8_t* buffer = staging + piece % kBuffers * 8192;
    // If the number of pieces is odd, the next tile starts with the buffer of this tile's last
    // piece.
    const bool other_buffer = kBuffers == 2 && (piece > 0 || kPieces % 2 == 0);
    if (issuer && other_buffer) wait_stores_read<1>();
    if (issuer && !other_buffer) wait_stores_read<0>();
    sync_named(barrier, 128);
    stage_rows<8>(acc + 32 * piece, buffer);
    if (bulk) fence_shared_for_async();
    sync_named(barrier, 128);
    if (!bulk) store_rows<8>(p, buffer, token, tokens, feature + 64 * piece);
    if (bulk && issuer) {
      store_box(&p.y, buffer, feature + 64 * piece, token);
      commit_stores();
    }
    __syncwarp();
  }
  if constexpr (kRestChunks > 0) {
    uint8_t* buffer = staging + kPieces % kBuffers * 8192;
    if (issuer) wait_stores_read<(kPieces > 0 ? kBuffers - 1 : 0)>();
    sync_named(barrier, 128);
    stage_rows<kRestChunks>(acc + 32 * kPieces, buffer);
    sync_named(barrier, 128);
    store_rows<kRestChunks>(p, buffer, token, tokens, feature + 64 * kPieces);
  }
}

// store_plain for tiles without a limit on tokens, with at most two warpgroups.
template <int kCount>
__device__ __forceinline__ void store_plain(const GemmProblem& p, const float (&acc)[kCount],
                                            uint8_t* staging, int barrier, int token, int feature) {
  constexpr int kBuffers = kCount > 32 ? 2 : 1;
  store_plain<kBuffers>(p, acc, staging, barrier, token, min(64, p.tokens - token), feature);
}

// Writes accumulators of 64 features x 8 kGroups tokens to `staging`, one row per token.
template <int kGroups>
__device__ __forceinline__ void stage_transposed(const float* acc, uint8_t* staging) {
  const int lane = threadIdx.x % 32;
  const int chunk = threadIdx.x % 128 / 32 * 2 + lane / 8 % 2;
#pragma unroll
  for (int j = 0; j + 1 < kGroups; j += 2) {
    const float* d = acc + 4 * j;
    const int row = 8 * (j + lane / 16) + lane % 8;
    store_matrices_transposed(shared_address(staging) + swizzled_offset(row, chunk),
                              pack_bf16(d[0], d[1]), pack_bf16(d[2], d[3]), pack_bf16(d[4], d[5]),
                              pack_bf16(d[6], d[7]));
  }
  if constexpr (kGroups % 2 == 1) {
    const float* d = acc + 4 * (kGroups - 1);
    const int row = 8 * (kGroups - 1) + lane % 8;
    store_matrices_transposed(shared_address(staging) + swizzled_offset(row, chunk),
                              pack_bf16(d[0], d[1]), pack_bf16(d[2], d[3]));
  }
}

// Swapped order: stores the first `count` of 64 features (a multiple of 8) of the first `tokens` of
// kCount * 2 tokens, in 16-byte stores, 64 tokens at a time.
template <int kBuffers, int kCount>
__device__ __forceinline__ void store_swapped(const GemmProblem& p, const float (&acc)[kCount],
                                              uint8_t* staging, int barrier, int token, int tokens,
                                              int feature, int count) {
  constexpr int kPieces = (kCount + 31) / 32;
  const int chunk = threadIdx.x % 8;
  sync_named(barrier, 128);  // the buffers no longer hold the previous tile
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    constexpr int kLastGroups = kCount / 4 - 8 * (kPieces - 1);
    // With two buffers no barrier is needed here: a warp that passes the barrier below has finished
    // reading the other buffer.
    uint8_t* buffer = staging + piece % kBuffers * 8192;
    if (kBuffers == 1 && piece > 0) sync_named(barrier, 128);
    if (piece + 1 < kPieces) {
      stage_transposed<8>(acc + 32 * piece, buffer);
    } else {
      stage_transposed<kLastGroups>(acc + 32 * (kPieces - 1), buffer);
    }
    sync_named(barrier, 128);
    const int rows = 8 * chunk < count ? min(64, tokens - 64 * piece) : 0;
    const int first = token + 64 * piece;
    for (int row = threadIdx.x % 128 / 8; row < rows; row += 16) {
      const uint4 value = *reinterpret_cast<const uint4*>(buffer + swizzled_offset(row, chunk));
      __nv_bfloat16* y = static_cast<__nv_bfloat16*>(p.y_base) + int64_t{first + row} * p.y_stride;
      *reinterpret_cast<uint4*>(y + feature + 8 * chunk) = value;
    }
    __syncwarp();
  }
}

// Up to this many tokens per tile, storing from registers is faster than through shared memory.
constexpr int kFewTokens = 32;

__device__ __forceinline__ void store_pair(__nv_bfloat16* y, float a, float b) {
  *reinterpret_cast<uint32_t*>(y) = pack_bf16(a, b);
}
__device__ __forceinline__ void store_pair(float* y, float a, float b) {
  *reinterpret_cast<float2*>(y) = make_float2(a, b);
}

// Plain order: stores the first `tokens` of 64 rows, with kCount * 2 features, from registers.
// `before`: offset of the head within a row of y, in elements.
template <class Element, int kCount>
__device__ __forceinline__ void store_plain_pairs(const GemmProblem& p, const float (&acc)[kCount],
                                                  int token, int tokens, int feature,
                                                  int64_t before = 0) {
  const int row = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
  const int column = feature + 2 * (threadIdx.x % 4);
  Element* low = static_cast<Element*>(p.y_base) + before + (token + row) * p.y_stride + column;
  Element* high = low + 8 * p.y_stride;
#pragma unroll
  for (int j = 0; j < kCount / 4; ++j) {
    if (feature + 8 * j >= p.features) break;
    const float* d = acc + 4 * j;
    if (row < tokens) store_pair(low + 8 * j, d[0], d[1]);
    if (row + 8 < tokens) store_pair(high + 8 * j, d[2], d[3]);
  }
}

// Swapped order, f32: stores the first `count` of 64 features (a multiple of 8) of the first
// `tokens` of kCount * 2 tokens.
template <int kCount>
__device__ __forceinline__ void store_swapped_f32(const GemmProblem& p, const float (&acc)[kCount],
                                                  int token, int tokens, int feature, int count) {
  const int row = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
  const int column = 2 * (threadIdx.x % 4);
  float* y = static_cast<float*>(p.y_base) + (token + column) * p.y_stride + feature + row;
#pragma unroll
  for (int j = 0; j < kCount / 4; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // feature row + 8 (i / 2), token column + 8 j + i % 2
      if (row + 8 * (i / 2) < count && column + 8 * j + i % 2 < tokens) {
        y[(8 * j + i % 2) * p.y_stride + 8 * (i / 2)] = acc[4 * j + i];
      }
    }
  }
}

}  // namespace slimexx::kernels
