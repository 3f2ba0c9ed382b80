// Computes h = silu(gate) * up from the sums of gate and up: adds the bias, rounds both to bf16 as
// the plain product would store them, then computes as swiglu_forward does.
#pragma once
#include "kernels/common/swiglu.cuh"
#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/swiglu/swiglu_weights.cuh"

namespace slimexx::kernels {

// Rounds two neighbouring sums to bf16.
__device__ __forceinline__ float2 round_pair(const float* sums) {
  const uint32_t pair = pack_bf16(sums[0], sums[1]);
  return {widen_low(pair), widen_high(pair)};
}

// h of two neighbouring features, packed as bf16.
__device__ __forceinline__ uint32_t combine_pair(const float* gate, const float* up) {
  const float2 g = round_pair(gate), u = round_pair(up);
  return pack_bf16(swiglu(g.x, u.x), swiglu(g.y, u.y));
}

// Adds the bias to 16 kChunks columns of gate and up, which give 8 kChunks features. The bias of up
// starts p.features elements after that of gate.
template <int kChunks>
__device__ __forceinline__ void add_gate_up_column_bias(const GemmProblem& p, float* acc,
                                                        int first_feature) {
  const int lane_feature = first_feature + 2 * (threadIdx.x % 4);
#pragma unroll
  for (int j = 0; j < 2 * kChunks; ++j) {
    const int feature = lane_feature + 8 * (j / 2);
    if (feature >= p.features) break;
    const __nv_bfloat16* at = p.bias + feature + j % 2 * p.features;
    const float2 bias = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(at));
    acc[4 * j] += bias.x;
    acc[4 * j + 1] += bias.y;
    acc[4 * j + 2] += bias.x;
    acc[4 * j + 3] += bias.y;
  }
}

// Adds the bias in swapped order, for 8 kGroups tokens: features are the accumulator's rows.
template <int kGroups>
__device__ __forceinline__ void add_gate_up_row_bias(const GemmProblem& p, float* acc,
                                                     int first_feature) {
  const int feature = first_feature + threadIdx.x % 128 / 32 * 8 + threadIdx.x % 32 / 4;
  const bool inside = feature < p.features;
  const float gate = inside ? __bfloat162float(p.bias[feature]) : 0.0f;
  const float up = inside ? __bfloat162float(p.bias[p.features + feature]) : 0.0f;
#pragma unroll
  for (int i = 0; i < 4 * kGroups; ++i) acc[i] += i % 4 < 2 ? gate : up;
}

// Plain order: this thread's part of h for 8 features, laid out like 8 accumulator columns.
struct FeatureGroup {
  uint32_t low, high;  // rows l / 4 and l / 4 + 8 of lane l
};
__device__ __forceinline__ FeatureGroup combine_group(const float* acc) {
  return {combine_pair(acc, acc + 4), combine_pair(acc + 2, acc + 6)};
}

// Writes h, 64 tokens x 8 kChunks features, to `buffer`, in swizzled rows of 128 bytes.
template <int kChunks>
__device__ __forceinline__ void stage_features(const float* acc, uint8_t* buffer) {
  const int lane = threadIdx.x % 32;
  const int row = threadIdx.x % 128 / 32 * 16 + lane % 16;
#pragma unroll
  for (int j = 0; j + 1 < kChunks; j += 2) {
    const FeatureGroup a = combine_group(acc + 8 * j), b = combine_group(acc + 8 * j + 8);
    store_matrices(shared_address(buffer) + swizzled_offset(row, j + lane / 16), a.low, a.high,
                   b.low, b.high);
  }
  if constexpr (kChunks % 2 == 1) {
    const FeatureGroup a = combine_group(acc + 8 * (kChunks - 1));
    store_matrices(shared_address(buffer) + swizzled_offset(row, kChunks - 1), a.low, a.high);
  }
}

// Plain order: stores the first `tokens` of 64 tokens from registers.
template <int kChunks>
__device__ __forceinline__ void store_feature_pairs(const GemmProblem& p, const float* acc,
                                                    int token, int tokens, int feature) {
  const int row = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
  const int column = feature + 2 * (threadIdx.x % 4);
  __nv_bfloat16* low = static_cast<__nv_bfloat16*>(p.y_base) + (token + row) * p.y_stride + column;
  __nv_bfloat16* high = low + 8 * p.y_stride;
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
    if (feature + 8 * j >= p.features) break;
    const FeatureGroup group = combine_group(acc + 8 * j);
    if (row < tokens) *reinterpret_cast<uint32_t*>(low + 8 * j) = group.low;
    if (row + 8 < tokens) *reinterpret_cast<uint32_t*>(high + 8 * j) = group.high;
  }
}

// Two tokens of 32 features share a row of 128 bytes. Neither writing 8 tokens at a time nor
// reading 2 has bank conflicts.
__device__ __forceinline__ uint32_t half_row_offset(int token, int chunk) {
  return swizzled_offset(token / 2, token % 2 * 4 + chunk);
}

// Swapped order: writes h of 8 kGroups tokens to `buffer`, 32 features per token. In each group of
// 8 tokens, lane l of warp w holds feature 8 w + l / 4 of tokens 2 (l % 4) and 2 (l % 4) + 1.
template <int kGroups>
__device__ __forceinline__ void stage_half_rows(const float* acc, uint8_t* buffer) {
  static_assert(kGroups % 2 == 0);
  const int lane = threadIdx.x % 32, chunk = threadIdx.x % 128 / 32;
  const auto combine = [acc](int j) { return combine_pair(acc + 4 * j, acc + 4 * j + 2); };
#pragma unroll
  for (int j = 0; j + 3 < kGroups; j += 4) {
    store_matrices_transposed(shared_address(buffer) + half_row_offset(8 * j + lane, chunk),
                              combine(j), combine(j + 1), combine(j + 2), combine(j + 3));
  }
  if constexpr (kGroups % 4 == 2) {
    constexpr int j = kGroups - 2;
    store_matrices_transposed(shared_address(buffer) + half_row_offset(8 * j + lane % 16, chunk),
                              combine(j), combine(j + 1));
  }
}

// Copies the staged rows to h: `count` features (a multiple of 8) of `tokens` tokens, in 16-byte
// stores.
__device__ __forceinline__ void store_half_rows(const GemmProblem& p, const uint8_t* buffer,
                                                int token, int tokens, int feature, int count) {
  const int chunk = threadIdx.x % 4;
  const int rows = 8 * chunk < count ? tokens : 0;
  for (int row = threadIdx.x % 128 / 4; row < rows; row += 32) {
    const uint4 value = *reinterpret_cast<const uint4*>(buffer + half_row_offset(row, chunk));
    __nv_bfloat16* y = static_cast<__nv_bfloat16*>(p.y_base) + int64_t{token + row} * p.y_stride;
    *reinterpret_cast<uint4*>(y + feature + 8 * chunk) = value;
  }
  __syncwarp();
}

// The epilogue that replaces StoreProduct. p.features and p.y_* describe h; a tile's rows and
// columns count features of the product, twice as many. A tile is finished in pieces of up to 128
// columns, because the registers cannot hold the sums and all of h.
struct StoreSwiglu {
  template <class Tile>
  __device__ __forceinline__ void finish(const GemmProblem& p, float (&acc)[Tile::kColumns / 2],
                                         int row, int column, int end_token, uint8_t* staging,
                                         int group) const {
    constexpr int kWhole = Tile::kColumns / 128, kRest = Tile::kColumns % 128;
#pragma unroll
    for (int piece = 0; piece < kWhole; ++piece) {
      finish_piece<Tile, 128>(p, acc + 64 * piece, row, column, end_token, piece, staging, group);
    }
    if constexpr (kRest > 0) {
      finish_piece<Tile, kRest>(p, acc + 64 * kWhole, row, column, end_token, kWhole, staging,
                                group);
    }
  }

 private:
  template <class Tile, int kColumns>
  __device__ __forceinline__ void finish_piece(const GemmProblem& p, float* acc, int row,
                                               int column, int end_token, int piece,
                                               uint8_t* staging, int group) const {
    uint8_t* buffer = staging + piece % Tile::kBuffers * 8192;
    if constexpr (Tile::kSwap) {
      const int feature = row / 2, token = column + 128 * piece;
      const int count = min(min(tile_rows<Tile>(p) - group * 64, 64) / 2, p.features - feature);
      const int tokens = min(p.tile_tokens, end_token - column) - 128 * piece;
      if (p.bias != nullptr) add_gate_up_row_bias<kColumns / 8>(p, acc, feature);
      // With two buffers only the first piece needs this barrier: a warp that passes the barrier
      // below has finished reading the other buffer.
      if (Tile::kBuffers == 1 || piece == 0) sync_named(1 + group, 128);
      stage_half_rows<kColumns / 8>(acc, buffer);
      sync_named(1 + group, 128);
      store_half_rows(p, buffer, token, min(128, tokens), feature, count);
    } else {
      const int feature = column / 2 + 64 * piece;
      const int tokens = min(min(p.tile_tokens - group * 64, 64), end_token - row);
      if (p.bias != nullptr) add_gate_up_column_bias<kColumns / 16>(p, acc, feature);
      if constexpr (Tile::kStaged) {
        if (Tile::kGroups > 1 || tokens > kFewTokens) {
          store_features<Tile, kColumns / 16>(p, acc, buffer, 1 + group, row, tokens, feature);
          return;
        }
      }
      if constexpr (Tile::kGroups == 1)
        store_feature_pairs<kColumns / 16>(p, acc, row, tokens, feature);
    }
  }

  // Plain order: stores the first `tokens` of 64 tokens, 64 features by TMA, fewer by ordinary
  // stores.
  template <class Tile, int kChunks>
  __device__ __forceinline__ void store_features(const GemmProblem& p, const float* acc,
                                                 uint8_t* buffer, int barrier, int token,
                                                 int tokens, int feature) const {
    // If each piece of a tile has its own buffer, one TMA store may be pending: the other buffer's.
    constexpr bool kOwnBuffer = Tile::kBuffers == 2 && (kChunks < 8 || Tile::kColumns == 256);
    const bool issuer = threadIdx.x % 128 == 0;
    // TMA clips at the end of h.
    const bool bulk = kChunks == 8 && (tokens == 64 || token + tokens == p.tokens);
    if (issuer) wait_stores_read<kOwnBuffer ? 1 : 0>();
    sync_named(barrier, 128);
    stage_features<kChunks>(acc, buffer);
    if (bulk) fence_shared_for_async();
    sync_named(barrier, 128);
    if (!bulk) store_rows<kChunks>(p, buffer, token, tokens, feature);
    if (bulk && issuer) {
      store_box(&p.y, buffer, feature, token);
      commit_stores();
    }
    __syncwarp();
  }
};

}  // namespace slimexx::kernels
