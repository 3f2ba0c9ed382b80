// Rounds groups of cached keys through FP8, and stores them in pages. A thread has a chunk of eight
// elements, and 16 neighbouring lanes have a group with one scale.
#pragma once
#include "kernels/float8/convert.cuh"
#include "kernels/rows/chunk.cuh"
#include "slimexx/kernels/float8.h"

namespace slimexx::kernels::rows {

inline constexpr int kGroupLanes = tensor::kF8LatentGroup / kChunk;
static_assert(kGroupLanes == 16);

struct F8Chunk {
  Chunk rounded;  // dequantised values
  uint2 bytes;    // e4m3
  float scale;    // of the group
};

// All lanes of the warp must call.
__device__ __forceinline__ F8Chunk round_to_f8(const Chunk& chunk) {
  // The bits of magnitudes are ordered as the magnitudes, and NaN is above all of them.
  uint32_t amax = 0;
#pragma unroll
  for (const uint32_t pair : chunk.pair) {
    amax = max(amax, max(pair << 16 & 0x7fffffff, pair & 0x7fff0000));
  }
#pragma unroll
  for (int lanes = 1; lanes < kGroupLanes; lanes *= 2) {
    amax = max(amax, __shfl_xor_sync(0xffffffffu, amax, lanes));
  }
  const tensor::F8RowScale s = tensor::f8_key_scale(__uint_as_float(amax));
  F8Chunk result{};
  result.scale = s.scale;
  float value[kChunk];
  unpack(value, chunk);
  uint32_t pairs[kChunk / 2];
#pragma unroll
  for (int i = 0; i < kChunk; i += 2) {
    pairs[i / 2] = pack_f8(__fmul_rn(value[i], s.factor), __fmul_rn(value[i + 1], s.factor));
    const float2 own = widen_f8(pairs[i / 2]);
    value[i] = __fmul_rn(own.x, s.scale);
    value[i + 1] = __fmul_rn(own.y, s.scale);
  }
  result.rounded = pack(value);
  result.bytes = make_uint2(pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16);
  return result;
}

// Pages of latent rows: bf16 rows, or rows of bytes (tensor::F8LatentRow).
struct LatentPages {
  uint8_t* pages;  // null: none
  const int32_t* slots;
  int64_t row_bytes;
  int scales_at, rotary_at;  // offsets in a row; bf16 rows have no scales

  // Null if the token has no slot.
  __device__ __forceinline__ uint8_t* row_of(int64_t token) const {
    const int64_t slot = pages != nullptr ? slots[token] : -1;
    return slot >= 0 ? pages + slot * row_bytes : nullptr;
  }
  __device__ __forceinline__ Bf16* rotary_of(uint8_t* row) const {
    return reinterpret_cast<Bf16*>(row + rotary_at);
  }
};

inline LatentPages describe_pages(void* pages, const int32_t* slots, int64_t rank,
                                  int64_t rotary_width, bool f8) {
  const tensor::F8LatentRow row = f8 ? tensor::latent_f8_row(rank, rotary_width)
                                     : tensor::F8LatentRow{0, 2 * rank, 2 * (rank + rotary_width)};
  return {static_cast<uint8_t*>(pages), slots, row.bytes, static_cast<int>(row.scales_at),
          static_cast<int>(row.rotary_at)};
}

// Rounds the chunk that begins at column `begin` of a latent row; chunks past `rank` are zeros. All
// lanes of the warp must call, and at least one thread more than the row has chunks, if their
// number is odd. If `page` is not null, stores the chunk and the group's scale there, and the zeros
// that pad the values and the scales.
__device__ __forceinline__ Chunk round_latent_chunk(const Chunk& chunk, int begin, int rank,
                                                    uint8_t* page, const LatentPages& pages) {
  const F8Chunk rounded = round_to_f8(chunk);
  if (page == nullptr) return rounded.rounded;
  if (begin < pages.scales_at) {
    *reinterpret_cast<uint2*>(page + begin) = begin < rank ? rounded.bytes : uint2{};
  }
  constexpr int kGroup = static_cast<int>(tensor::kF8LatentGroup);
  const int scales_end = (pages.rotary_at - pages.scales_at) / 4, group = begin / kGroup;
  if (begin % kGroup == 0 && begin < rank) {
    auto* scales = reinterpret_cast<float*>(page + pages.scales_at);
    scales[group] = rounded.scale;
    if (begin + kGroup >= rank) {
      for (int i = group + 1; i < scales_end; ++i) scales[i] = 0.0f;
    }
  }
  return rounded.rounded;
}

}  // namespace slimexx::kernels::rows
