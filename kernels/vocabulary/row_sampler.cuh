// One block chooses the token of one row from the partial results of the row's tiles:
//   untruncated  the uniform number picks a tile by the tiles' masses, then a token in that tile
//   greedy       the first token that equals the row's maximum, in the first tile that has it
// Truncated rows: truncation.cuh.
#pragma once
#include "kernels/vocabulary/select.cuh"

namespace slimexx::kernels::vocabulary {

struct RowMemory {
  SamplingParameters parameters;
  float lse, maximum;  // lse of all columns, maximum of the allowed columns
  int first, token;
  uint64_t before, mass;
  uint64_t warps[2][kSamplingWarps];
  float maxima[kMaxTiles], sums[kMaxTiles];  // per tile; see sum_edge for the last tile
};

struct SampledRow {
  const float* logits;
  LogitDivider divider;
  int columns, tiles;  // allowed columns, and the tiles that hold them
  bool has_edge;       // the last of these tiles also has columns that are not allowed
  float maximum;       // largest z of the allowed columns

  __device__ SampledRow(const LogitRows& rows, int64_t row, int allowed, float temperature)
      : logits(rows.logits + row * rows.stride),
        divider(temperature),
        columns(allowed),
        tiles(static_cast<int>(count_tiles(allowed))),
        has_edge(allowed < rows.columns && allowed % kTileColumns != 0),
        maximum(0.0f) {}

  __device__ float z_of(int column) const { return divider(logits[column]); }
  __device__ bool has_top_k(const SamplingParameters& p) const {
    return p.top_k > 0 && p.top_k < columns;
  }
  __device__ bool is_truncated(const SamplingParameters& p) const {
    return has_top_k(p) || p.top_p < 1.0f || p.min_p > 0.0f;
  }
};

// Recomputes the partial result of the last allowed tile from its allowed columns alone. Called by
// one warp.
__device__ __forceinline__ void sum_edge(RowMemory& memory, const SampledRow& row) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int first = (row.tiles - 1) * kTileColumns;
  float z[kLaneValues];
#pragma unroll
  for (int k = 0; k < kLaneValues; ++k) {
    const int column = first + tile_column(lane % kLanesPerTile, k);
    z[k] = column < row.columns ? divide_logit(row.logits[column], row.divider.temperature)
                                : -kInfinity;
  }
  const TileSum tile = sum_tile<false>([&z](int k) { return z[k]; });
  __syncwarp();
  if (lane == 0) {
    memory.maxima[row.tiles - 1] = tile.maximum;
    memory.sums[row.tiles - 1] = tile.sum;
  }
  __syncwarp();
}

// Reads the partial results and writes the row's log-normaliser and largest allowed z to `memory`.
// Returns false if the row is not a distribution.
__device__ __forceinline__ bool read_tiles(RowMemory& memory, SampledRow& row, int64_t index,
                                           const TilePartials& partials) {
  const int tiles = static_cast<int>(partials.tiles);
  for (int t = static_cast<int>(threadIdx.x); t < tiles; t += kSamplingThreads) {
    memory.maxima[t] = partials.maximum[index * tiles + t];
    memory.sums[t] = partials.sum[index * tiles + t];
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    const TileSum all = merge_tiles<false>(memory.maxima, memory.sums, nullptr, tiles);
    float maximum = all.maximum;
    if (row.tiles != tiles || row.has_edge) {
      if (row.has_edge) sum_edge(memory, row);
      maximum = -kInfinity;
      for (int t = static_cast<int>(threadIdx.x); t < row.tiles; t += 32) {
        maximum = fmaxf(maximum, memory.maxima[t]);
      }
      for (int distance = 16; distance > 0; distance /= 2) {
        maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffu, maximum, distance));
      }
    }
    if (threadIdx.x == 0) {
      memory.lse = row_lse(all);
      memory.maximum = maximum;
    }
  }
  __syncthreads();
  row.maximum = memory.maximum;
  return row.maximum > -kInfinity && fabsf(memory.lse) < kInfinity;
}

// The first index below `count` for which the predicate holds. Such an index must exist. Called by
// the whole block.
template <class Predicate>
__device__ __forceinline__ int first_where(RowMemory& memory, int count, Predicate predicate) {
  if (threadIdx.x == 0) memory.first = count;
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kSamplingThreads) {
    if (!predicate(i)) continue;
    atomicMin(&memory.first, i);
    break;
  }
  __syncthreads();
  const int first = memory.first;
  __syncthreads();
  return first;
}

__device__ __forceinline__ int pick_largest(RowMemory& memory, const SampledRow& row) {
  const int tile =
      first_where(memory, row.tiles, [&](int t) { return memory.maxima[t] == row.maximum; });
  const int first = tile * kTileColumns;
  return first + first_where(memory, min(kTileColumns, row.columns - first),
                             [&](int c) { return row.z_of(first + c) == row.maximum; });
}

// Masses of the tiles 2t and 2t + 1, which thread t owns.
__device__ __forceinline__ void weigh_tiles(const RowMemory& memory, const SampledRow& row,
                                            uint64_t (&masses)[2]) {
  static_assert(kMaxTiles <= 2 * kSamplingThreads);
  for (int i = 0; i < 2; ++i) {
    const int t = 2 * static_cast<int>(threadIdx.x) + i;
    masses[i] = 0;
    if (t >= row.tiles) continue;
    masses[i] = mass_of(__fmul_rn(memory.sums[t], weight_of(memory.maxima[t], row.maximum)));
  }
}

// Picks a tile by the tiles' masses, then a token in it by the tokens' masses.
__device__ __forceinline__ int pick_from_all(RowMemory& memory, const SampledRow& row,
                                             KeptSet& kept) {
  uint64_t masses[2], total;
  weigh_tiles(memory, row, masses);
  const uint64_t before = scan_block(masses[0] + masses[1], memory.warps[0], total);
  kept.total = kept.mass = total;
  const uint64_t goal = scale_uniform(uniform_bits(memory.parameters), total);
  if (before <= goal && goal < before + masses[0] + masses[1]) {
    const int second = goal < before + masses[0] ? 0 : 1;
    memory.first = 2 * static_cast<int>(threadIdx.x) + second;
    memory.before = second ? before + masses[0] : before;
    memory.mass = masses[second];
  }
  __syncthreads();
  // The goal's position within the tile's mass, as a fraction. The tokens' masses, relative to the
  // tile's maximum, sum to less than 2^53, so a double holds this sum exactly.
  const double share = static_cast<double>(goal - memory.before) / static_cast<double>(memory.mass);
  const int token = memory.first * kTileColumns + static_cast<int>(threadIdx.x);
  uint64_t mass = 0;
  if (threadIdx.x < kTileColumns && token < row.columns) {
    mass = mass_of(weight_of(row.z_of(token), memory.maxima[memory.first]));
  }
  const uint64_t tokens_before = scan_block(mass, memory.warps[1], total);
  const uint64_t within = min(static_cast<uint64_t>(share * static_cast<double>(total)), total - 1);
  if (tokens_before <= within && within < tokens_before + mass) memory.token = token;
  __syncthreads();
  return memory.token;
}

}  // namespace slimexx::kernels::vocabulary
