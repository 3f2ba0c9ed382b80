// x of a QuantisingTile: every thread block quantises all rows of x, as quantise.cu does, and keeps
// them in shared memory for all its tiles. Meanwhile the first stages of weights arrive.
//
// Values: chunks of 16 bytes, chunk c of row r at 16 (c pitch + r): see describe_chunked_tile. This
// takes no room for rows that x does not have, and a tile may begin at any row. wgmma also reads
// what is not x; it belongs to columns that are not stored. The pitch is odd, so that the lanes of
// a group write to different banks. Scales follow the values: [K / 128, rows].
#pragma once
#include "kernels/float8/load.cuh"
#include "kernels/float8/quantise_group.cuh"

namespace slimexx::kernels {

constexpr int input_pitch(int rows) { return rows | 1; }
__host__ __device__ constexpr int input_value_bytes(int pitch, int k_blocks) {
  return pitch * k_blocks * kBlockBytes;
}
// With room for the scales that the columns past the last row read.
constexpr int input_bytes(int rows, int k_blocks) {
  return input_value_bytes(input_pitch(rows), k_blocks) +
         divide_up(rows * k_blocks + static_cast<int>(kFp8MostInputRows), 4) * 16;
}
constexpr int kMostInputBytes =
    static_cast<int>(kFp8MostInputBytes + kFp8MostInputBytes / 32 + kFp8MostInputRows * 4);

template <class Tile>
__device__ __forceinline__ float* input_scales(const Float8Problem& p,
                                               const Float8Shared<Tile>& shared) {
  return reinterpret_cast<float*>(shared.input + input_value_bytes(p.x_pitch, p.k_blocks));
}

// Groups of 128 elements of x in the order of its rows.
struct InputCursor {
  int row, block;
  __device__ __forceinline__ void advance(int groups, int k_blocks) {
    for (block += groups; block >= k_blocks; block -= k_blocks) ++row;
  }
};

// For all computing warps. Waits for the kernels before this one, which write x.
template <class Tile>
__device__ __forceinline__ void quantise_input(const Float8Problem& p,
                                               const Float8Shared<Tile>& shared) {
  constexpr int kGroupsAtOnce = 128 * Tile::kGroups / kGroupLanes;
  constexpr int kInFlight = Tile::kGroups == 1 ? 4 : 2, kInputBarrier = 12;
  const int thread = threadIdx.x - 128, lane = thread % kGroupLanes;
  float* scales = input_scales(p, shared);
  InputCursor loaded{0, 0};
  loaded.advance(thread / kGroupLanes, p.k_blocks);
  InputCursor stored = loaded;
  const auto load = [&](Elements(&e)[kInFlight]) {
#pragma unroll
    for (Elements& own : e) {
      own = {};
      if (loaded.row < p.x_rows) {
        const auto* from = reinterpret_cast<const uint4*>(
            p.x + loaded.row * p.x_stride + loaded.block * kBlockBytes + lane * kLaneElements);
        own.half[0] = __ldcg(from);  // from L2: the L1 may still hold what was there before x
        own.half[1] = __ldcg(from + 1);
      }
      loaded.advance(kGroupsAtOnce, p.k_blocks);
    }
  };
  await_previous_grids();
  Elements e[kInFlight], next[kInFlight];
  load(e);
  // `first`: the group of the warp's first lanes.
  const int groups = p.x_rows * p.k_blocks;
  for (int first = thread / 32 * kWarpGroups; first < groups;) {
    load(next);
#pragma unroll
    for (int i = 0; i < kInFlight && first < groups; ++i, first += kGroupsAtOnce) {
      float scale;
      const uint4 q = quantise_group(e[i], scale);
      if (stored.row < p.x_rows) {
        const int chunk = stored.block * kGroupLanes + lane;
        *reinterpret_cast<uint4*>(shared.input + 16 * (chunk * p.x_pitch + stored.row)) = q;
        if (lane == 0) scales[stored.block * p.x_rows + stored.row] = scale;
      }
      stored.advance(kGroupsAtOnce, p.k_blocks);
      e[i] = next[i];
    }
  }
  fence_shared_for_async();
  sync_named(kInputBarrier, 128 * Tile::kGroups);
}

}  // namespace slimexx::kernels
