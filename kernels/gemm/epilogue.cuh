// From accumulators to y: bias in fp32, then either one rounding to bf16, staged in shared memory
// so that stores are wide, or f32 as it is, in whole sectors of 32 bytes straight from the
// registers. The same arithmetic on both operand orders.
#pragma once
#include "kernels/common/cluster.cuh"
#include "kernels/common/stmatrix.cuh"
#include "kernels/common/tma.cuh"
#include "kernels/gemm/tile.cuh"

namespace slimexx::kernels {

// Bias of an even feature and the next one; zero outside the tensor, where nothing is stored.
__device__ __forceinline__ float2 load_bias_pair(const GemmProblem& p, int feature) {
  if (feature >= p.features) return {0.0f, 0.0f};
  return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(p.bias + feature));
}

__device__ __forceinline__ float load_bias(const GemmProblem& p, int feature) {
  return feature < p.features ? __bfloat162float(p.bias[feature]) : 0.0f;
}

// Adds bias[feature] where features run along the accumulator's columns.
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

// Adds bias[feature] where features run along the accumulator's rows.
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

// Plain order: 64 token rows x kCount * 2 features, in pieces of 64 features through two buffers.
template <int kCount>
__device__ __forceinline__ void store_plain(const GemmProblem& p, const float (&acc)[kCount],
                                            uint8_t* staging, int barrier, int token, int feature) {
  const bool issuer = threadIdx.x % 128 == 0;
  const int lane = threadIdx.x % 32;
  const int row = threadIdx.x % 128 / 32 * 16 + lane % 16;
#pragma unroll
  for (int piece = 0; piece < kCount / 32; ++piece) {
    uint8_t* buffer = staging + piece % 2 * 8192;
    if (issuer) wait_stores_read<1>();
    sync_named(barrier, 128);
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      const float* d = acc + 32 * piece + 4 * j;
      store_matrices(shared_address(buffer) + swizzled_offset(row, j + lane / 16),
                     pack_bf16(d[0], d[1]), pack_bf16(d[2], d[3]), pack_bf16(d[4], d[5]),
                     pack_bf16(d[6], d[7]));
    }
    fence_shared_for_async();
    sync_named(barrier, 128);
    if (issuer) {
      store_box(&p.y, buffer, feature + 64 * piece, token);
      commit_stores();
    }
  }
}

// Accumulators of 64 features x kCount * 2 tokens into rows of one token each.
template <int kCount>
__device__ __forceinline__ void stage_transposed(const float (&acc)[kCount], uint8_t* staging) {
  const int lane = threadIdx.x % 32;
  const int chunk = threadIdx.x % 128 / 32 * 2 + lane / 8 % 2;
  if constexpr (kCount == 4) {
    store_matrices_transposed(shared_address(staging) + swizzled_offset(lane % 8, chunk),
                              pack_bf16(acc[0], acc[1]), pack_bf16(acc[2], acc[3]));
  } else {
#pragma unroll
    for (int j = 0; j < kCount / 4; j += 2) {
      const float* d = acc + 4 * j;
      const int row = 8 * (j + lane / 16) + lane % 8;
      store_matrices_transposed(shared_address(staging) + swizzled_offset(row, chunk),
                                pack_bf16(d[0], d[1]), pack_bf16(d[2], d[3]), pack_bf16(d[4], d[5]),
                                pack_bf16(d[6], d[7]));
    }
  }
}

// Swapped order: `count` of 64 features (a multiple of 8) x kCount * 2 tokens, in 16-byte stores.
template <int kCount>
__device__ __forceinline__ void store_swapped(const GemmProblem& p, const float (&acc)[kCount],
                                              uint8_t* staging, int barrier, int token, int feature,
                                              int count) {
  sync_named(barrier, 128);  // the previous tile has left the buffer
  stage_transposed(acc, staging);
  sync_named(barrier, 128);
  const int chunk = threadIdx.x % 8;
  if (8 * chunk >= count) return;
  const int tokens = min(2 * kCount, p.tokens - token);
  for (int row = threadIdx.x % 128 / 8; row < tokens; row += 16) {
    const uint4 value = *reinterpret_cast<const uint4*>(staging + swizzled_offset(row, chunk));
    __nv_bfloat16* y = static_cast<__nv_bfloat16*>(p.y_base) + int64_t{token + row} * p.y_stride;
    *reinterpret_cast<uint4*>(y + feature + 8 * chunk) = value;
  }
}

// Plain order, f32: 64 token rows x kCount * 2 features.
template <int kCount>
__device__ __forceinline__ void store_plain_f32(const GemmProblem& p, const float (&acc)[kCount],
                                                int token, int feature) {
  const int row = token + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
  const int column = feature + 2 * (threadIdx.x % 4);
  float* low = static_cast<float*>(p.y_base) + row * p.y_stride + column;
  float* high = low + 8 * p.y_stride;
#pragma unroll
  for (int j = 0; j < kCount / 4; ++j) {
    if (feature + 8 * j >= p.features) break;
    const float* d = acc + 4 * j;
    if (row < p.tokens) *reinterpret_cast<float2*>(low + 8 * j) = make_float2(d[0], d[1]);
    if (row + 8 < p.tokens) *reinterpret_cast<float2*>(high + 8 * j) = make_float2(d[2], d[3]);
  }
}

// Swapped order, f32: `count` of 64 features (a multiple of 8) x kCount * 2 tokens.
template <int kCount>
__device__ __forceinline__ void store_swapped_f32(const GemmProblem& p, const float (&acc)[kCount],
                                                  int token, int feature, int count) {
  const int row = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
  const int column = token + 2 * (threadIdx.x % 4);
  float* y = static_cast<float*>(p.y_base) + column * p.y_stride + feature + row;
#pragma unroll
  for (int j = 0; j < kCount / 4; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // feature row + 8 (i / 2), token column + 8 j + i % 2
      if (row + 8 * (i / 2) < count && column + 8 * j + i % 2 < p.tokens) {
        y[(8 * j + i % 2) * p.y_stride + 8 * (i / 2)] = acc[4 * j + i];
      }
    }
  }
}

}  // namespace slimexx::kernels
