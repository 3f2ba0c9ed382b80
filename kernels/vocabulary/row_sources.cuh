// The two sources of a row's tokens for the block that samples it: the row's tiles, read from
// global memory again, or a list of candidates in shared memory. Both call f(key, id) once per
// token, in no particular order.
#pragma once
#include "kernels/vocabulary/select.cuh"

namespace slimexx::kernels::vocabulary {

constexpr int kMaxCandidates = 7168;
constexpr int kIdBinBits = 7;  // 128 ids (half a tile) per bin, so kBins bins hold every id
static_assert(int64_t{kBins} << kIdBinBits == kMaxSampledColumns);

// Tokens of the listed tiles whose key is at least lowest_key.
struct TiledRow {
  const float* logits;
  LogitDivider divider;
  int columns;  // allowed columns
  uint32_t lowest_key;
  const uint16_t* tiles;  // shared memory
  int tile_count;

  // Whole warps call visit(first column, four logits), half a tile at a time. The last calls may
  // include columns that are not allowed.
  template <class Visit>
  __device__ __forceinline__ void for_each_half(Visit visit) const {
    constexpr int kAtOnce = 2;  // tiles in flight per warp: 2 KB
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int warp = static_cast<int>(threadIdx.x / 32);
    for (int i = warp * kAtOnce; i < tile_count; i += kSamplingWarps * kAtOnce) {
      float4 values[2 * kAtOnce];
#pragma unroll
      for (int h = 0; h < 2 * kAtOnce; ++h) {
        const int column = first_column(i, h, lane);
        if (column < columns) values[h] = *reinterpret_cast<const float4*>(logits + column);
      }
#pragma unroll
      for (int h = 0; h < 2 * kAtOnce; ++h) {
        if (i + h / 2 < tile_count) visit(first_column(i, h, lane), values[h]);
      }
    }
  }

  template <class F>
  __device__ __forceinline__ void for_each(F f) const {
    for_each_half([&](int column, const float4& v) {
      visit_logit(v.x, column, f);
      visit_logit(v.y, column + 1, f);
      visit_logit(v.z, column + 2, f);
      visit_logit(v.w, column + 3, f);
    });
  }

  // Sets bin id / 128 of the histogram to the sum of mass(key, id).
  template <class Mass>
  __device__ __forceinline__ void add_by_id(Histogram& histogram, Mass mass) const {
    for_each_half([&](int column, const float4& v) {
      uint64_t sum = 0;
      const auto add = [&](uint32_t key, uint32_t id) { sum += mass(key, id); };
      visit_logit(v.x, column, add);
      visit_logit(v.y, column + 1, add);
      visit_logit(v.z, column + 2, add);
      visit_logit(v.w, column + 3, add);
      sum = add_lanes(0xffffffffu, sum);
      if (threadIdx.x % 32 == 0) histogram.set(column >> kIdBinBits, {1, sum});
    });
  }

 private:
  __device__ __forceinline__ int first_column(int index, int half, int lane) const {
    if (index + half / 2 >= tile_count) return columns;
    return tiles[index + half / 2] * kTileColumns + half % 2 * (kTileColumns / 2) + lane * 4;
  }
  template <class F>
  __device__ __forceinline__ void visit_logit(float logit, int column, F& f) const {
    if (column >= columns) return;
    const uint32_t key = key_of(divider.temperature == 1.0f ? logit : divider(logit));
    if (key >= lowest_key) f(key, static_cast<uint32_t>(column));
  }
};

struct CandidateList {
  const uint64_t* items;  // key * 2^32 + id
  int count;

  template <class F>
  __device__ __forceinline__ void for_each(F f) const {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kSamplingThreads) {
      f(static_cast<uint32_t>(items[i] >> 32), static_cast<uint32_t>(items[i]));
    }
  }
  template <class Mass>
  __device__ __forceinline__ void add_by_id(Histogram& histogram, Mass mass) const {
    for_each([&](uint32_t key, uint32_t id) {
      histogram.add(static_cast<int>(id >> kIdBinBits), mass(key, id));
    });
  }
};

}  // namespace slimexx::kernels::vocabulary
