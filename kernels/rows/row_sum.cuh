// Sums over one row that a thread block holds in registers, in the fixed order of the numerics
// contract, N4. The order depends on the row's width only.
//
// Chunk c of 8 elements belongs to thread c % threads. A thread adds its elements in four chains
// (element mod 4, ascending) and joins them as (0 + 1) + (2 + 3). The lanes of a warp are added by
// xor 16, 8, 4, 2, 1, then the warps as ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)). Missing elements
// count as zero.
#pragma once
#include "kernels/rows/launch.cuh"
#include "slimexx/kernels/limits.h"

namespace slimexx::kernels::rows {

inline constexpr int kMaxThreads = 256;
inline constexpr int kMaxWarps = kMaxThreads / 32;
static_assert(kMaxRowWidth == int64_t{8} * kMaxThreads * kChunk);

struct RowLayout {
  int chunks_per_thread, threads;
};

// width in [1, kMaxRowWidth].
inline RowLayout choose_row_layout(int64_t width) {
  const int64_t chunks = divide_up(width, kChunk);
  int per_thread = 1;
  while (chunks > int64_t{per_thread} * kMaxThreads) per_thread *= 2;
  return {per_thread, static_cast<int>(divide_up(divide_up(chunks, per_thread), 32) * 32)};
}

// The part of a row that this thread holds.
template <int kChunks>
struct RowPart {
  Chunk chunk[kChunks];
};

__device__ __forceinline__ int chunk_begin(int index) {
  return (static_cast<int>(threadIdx.x) + index * static_cast<int>(blockDim.x)) * kChunk;
}

template <int kChunks, bool kVector>
__device__ __forceinline__ RowPart<kChunks> load_row(const Bf16* row, int width) {
  RowPart<kChunks> part;
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
    const int begin = chunk_begin(j);
    part.chunk[j] = begin < width ? load_chunk<kVector>(row + begin, width - begin) : Chunk{};
  }
  return part;
}

template <int kCount>
__device__ __forceinline__ void sum_over_lanes(float (&v)[kCount]) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      v[i] = __fadd_rn(v[i], __shfl_xor_sync(0xffffffffu, v[i], distance));
    }
  }
}

// Every thread receives the sums. Other threads may still read the `shared` of the previous call,
// so callers in a loop alternate between two arrays.
template <int kCount>
__device__ __forceinline__ void sum_over_block(float (&v)[kCount],
                                               float (&shared)[kCount][kMaxWarps]) {
  sum_over_lanes(v);
  const int warps = static_cast<int>(blockDim.x) / 32;
  if (threadIdx.x % 32 == 0) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) shared[i][threadIdx.x / 32] = v[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    float s[kMaxWarps];
#pragma unroll
    for (int w = 0; w < kMaxWarps; ++w) s[w] = w < warps ? shared[i][w] : 0.0f;
    v[i] = __fadd_rn(__fadd_rn(__fadd_rn(s[0], s[1]), __fadd_rn(s[2], s[3])),
                     __fadd_rn(__fadd_rn(s[4], s[5]), __fadd_rn(s[6], s[7])));
  }
}

__device__ __forceinline__ float join_chains(const float (&chain)[4]) {
  return __fadd_rn(__fadd_rn(chain[0], chain[1]), __fadd_rn(chain[2], chain[3]));
}

__device__ __forceinline__ void add_squares(float (&chain)[4], const Chunk& c) {
  float x[kChunk];
  unpack(x, c);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) chain[i % 4] = __fmaf_rn(x[i], x[i], chain[i % 4]);
}

template <int kChunks>
__device__ __forceinline__ float sum_of_squares(const RowPart<kChunks>& row) {
  float chain[4] = {0, 0, 0, 0};
#pragma unroll
  for (int j = 0; j < kChunks; ++j) add_squares(chain, row.chunk[j]);
  return join_chains(chain);
}

// The hardware's approximate reciprocal square root: relative error at most 2^-22.9.
__device__ __forceinline__ float inverse_rms(float sum_of_squares, float inverse_width, float eps) {
  float r;
  asm("rsqrt.approx.ftz.f32 %0, %1;"
      : "=f"(r)
      : "f"(__fadd_rn(__fmul_rn(sum_of_squares, inverse_width), eps)));
  return r;
}

// Launches the instance of Kernel for the layout.
template <template <int, bool> class Kernel, class... Arguments>
cudaError_t launch_by_layout(RowLayout layout, bool vector, int shared_bytes, dim3 grid,
                             cudaStream_t stream, Arguments... arguments) {
  const auto run = [&](auto* kernel) {
    return launch_early(kernel, {grid, layout.threads, static_cast<size_t>(shared_bytes)}, stream,
                        arguments...);
  };
  switch (layout.chunks_per_thread) {
    case 1:
      return vector ? run(Kernel<1, true>::get()) : run(Kernel<1, false>::get());
    case 2:
      return vector ? run(Kernel<2, true>::get()) : run(Kernel<2, false>::get());
    case 4:
      return vector ? run(Kernel<4, true>::get()) : run(Kernel<4, false>::get());
    default:
      return vector ? run(Kernel<8, true>::get()) : run(Kernel<8, false>::get());
  }
}

}  // namespace slimexx::kernels::rows
