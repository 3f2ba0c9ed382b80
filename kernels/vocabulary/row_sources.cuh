// Where a block that samples one row finds its tokens: the row's tiles, read from memory again, or
// a list of candidates in shared memory. Both call f(key, id) once a token, in no particular order.
#pragma once
#include "kernels/vocabulary/sampling.cuh"

namespace slimexx::kernels::vocabulary {

constexpr int kMaxCandidates = 10240;

// Tokens of the listed tiles whose key is at least lowest_key.
struct TiledRow {
  const float* logits;
  float temperature;
  int columns;  // allowed ones
  uint32_t lowest_key;
  const uint16_t* tiles;  // shared memory
  int tile_count;

  template <class F>
  __device__ void for_each(F f) const {
    constexpr int kAtOnce = 2;  // tiles a warp has in flight: 2 KB
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int warp = static_cast<int>(threadIdx.x / 32);
    for (int i = warp * kAtOnce; i < tile_count; i += kSamplingWarps * kAtOnce) {
      float4 values[kAtOnce][2];
#pragma unroll
      for (int t = 0; t < kAtOnce; ++t) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int column = first_column(i + t, half, lane);
          if (column < columns) {
            values[t][half] = *reinterpret_cast<const float4*>(logits + column);
          }
        }
      }
#pragma unroll
      for (int t = 0; t < kAtOnce; ++t) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int column = first_column(i + t, half, lane);
          visit(values[t][half].x, column, f);
          visit(values[t][half].y, column + 1, f);
          visit(values[t][half].z, column + 2, f);
          visit(values[t][half].w, column + 3, f);
        }
      }
    }
  }

 private:
  __device__ __forceinline__ int first_column(int index, int half, int lane) const {
    if (index >= tile_count) return columns;
    return tiles[index] * kTileColumns + half * (kTileColumns / 2) + lane * 4;
  }
  template <class F>
  __device__ __forceinline__ void visit(float logit, int column, F f) const {
    if (column >= columns) return;
    const float z = temperature == 1.0f ? logit : divide_logit(logit, temperature);
    const uint32_t key = key_of(z);
    if (key >= lowest_key) f(key, static_cast<uint32_t>(column));
  }
};

struct CandidateList {
  const uint64_t* items;  // key * 2^32 + id
  int count;

  template <class F>
  __device__ void for_each(F f) const {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kSamplingThreads) {
      f(static_cast<uint32_t>(items[i] >> 32), static_cast<uint32_t>(items[i]));
    }
  }
};

}  // namespace slimexx::kernels::vocabulary
