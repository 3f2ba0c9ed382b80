// Divides heads and tokens among thread blocks: a block works on one tile of the heads for one part
// of the tokens. A lane processes the same head of all these tokens, so it loads norm weights once.
#pragma once
#include "kernels/common/device.h"
#include "kernels/rows/head_lanes.cuh"

namespace slimexx::kernels::rows {

inline constexpr int kTileThreads = 160;

struct HeadTiles {
  int tiles, tile_heads, threads;  // tiles per token, heads per tile, threads per block
  int parts;                       // parts that the tokens are divided into
};

// `resident_warps`: warps that fit on a multiprocessor; a head takes `lanes` of a warp.
inline HeadTiles choose_head_tiles(int64_t tokens, int64_t heads, int lanes,
                                   int64_t resident_warps) {
  HeadTiles t{};
  const int64_t tiles = divide_up(heads * lanes, kTileThreads), of_warp = 32 / lanes;
  const int64_t each = divide_up(divide_up(heads, tiles), of_warp) * of_warp;
  const int64_t threads = each * lanes;
  const int64_t blocks = kMultiprocessors * (resident_warps / (threads / 32));
  const int64_t parts = blocks / tiles < 1 ? 1 : blocks / tiles;
  t.tiles = static_cast<int>(tiles);
  t.tile_heads = static_cast<int>(each);
  t.threads = static_cast<int>(threads);
  t.parts = static_cast<int>(parts < tokens ? parts : tokens);
  return t;
}

// Rotates queries and keys of d [tokens, ...] by the negative angles, in place. The caller checks
// the sizes. Defined in qk_norm_rotary.cu.
cudaError_t rotate_back(void* d, const RotaryTables& rotary, const QkvShape& shape,
                        cudaStream_t stream);

inline bool is_served(const QkvShape& s, const RotaryTables& t) {
  const int64_t heads = s.query_heads + 2 * s.kv_heads, row = heads * s.head_dim;
  return s.tokens >= 0 && s.tokens <= INT_MAX && s.query_heads >= 0 && s.kv_heads >= 0 &&
         s.head_dim > 0 && s.head_dim <= 16 * kPart && s.head_dim % 2 == 0 && row <= INT_MAX / 2 &&
         heads <= int64_t{1} << 20 && t.rotary_dim >= 0 && t.rotary_dim <= s.head_dim &&
         t.rotary_dim % 2 == 0;
}

// `aligned`: the bf16 arrays start at multiples of 16 bytes, so heads do too if head_dim is a
// multiple of 16.
inline HeadMode choose_mode(const QkvShape& s, const RotaryTables& t, bool aligned) {
  if (!aligned || s.head_dim % kPart != 0 || t.rotary_dim % kPart != 0 ||
      !has_aligned_rows(t.cos) || !has_aligned_rows(t.sin)) {
    return kOneByOne;
  }
  if (t.interleaved || t.rotary_dim == 0) return kPairs;
  return t.rotary_dim == s.head_dim ? kHalves : kSomeHalves;
}

// Lanes per head: a power of two.
inline int count_lanes(int64_t head_dim) {
  int lanes = 1;
  while (lanes * kPart < head_dim) lanes *= 2;
  return lanes;
}

// Calls run<kLanes, kMode> for this head_dim and mode.
template <int kLanes, class Run>
cudaError_t with_mode(HeadMode mode, const Run& run) {
  switch (mode) {
    case kOneByOne:
      return run.template operator()<kLanes, kOneByOne>();
    case kPairs:
      return run.template operator()<kLanes, kPairs>();
    case kHalves:
      return run.template operator()<kLanes, kHalves>();
    default:
      return run.template operator()<kLanes, kSomeHalves>();
  }
}
template <class Run>
cudaError_t with_lanes(int64_t head_dim, HeadMode mode, const Run& run) {
  switch (count_lanes(head_dim)) {
    case 1:
      return with_mode<1>(mode, run);
    case 2:
      return with_mode<2>(mode, run);
    case 4:
      return with_mode<4>(mode, run);
    case 8:
      return with_mode<8>(mode, run);
    default:
      return with_mode<16>(mode, run);
  }
}

}  // namespace slimexx::kernels::rows
