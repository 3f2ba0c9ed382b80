// The pass of tile_pass.cu for many tiles. Every warp streams its own share, eight tiles at a time,
// through its own ring in shared memory. A bulk copy loads each tile, so loads are whole cache
// lines and 190 KB per multiprocessor are in flight; quotients are stored by bulk copies too. In
// shared memory the eight tiles are kPitch apart, so that the float2 reads of a half-warp (four
// tiles, four lanes each) have no bank conflicts.
#include "kernels/common/device.h"
#include "kernels/common/tma.cuh"
#include "kernels/vocabulary/launch.cuh"

namespace slimexx::kernels::vocabulary {
namespace {

constexpr int kWarps = 8;
constexpr int kStages = 3;
constexpr int kTilesPerStep = 8;
constexpr int kPitch = kTileColumns + 8;  // floats
constexpr int kStageFloats = kTilesPerStep * kPitch;
constexpr size_t kSharedBytes = size_t{kWarps} * kStages * kStageFloats * sizeof(float);

// The place of tile `index`, counted over all rows; width 0 after the last tile.
struct Tile {
  int64_t row;
  float* logits;
  int width;

  __device__ Tile(const LogitRows& rows, int64_t tiles_per_row, int64_t index) {
    const bool exists = index < rows.rows * tiles_per_row;
    row = exists ? index / tiles_per_row : 0;
    const int64_t first = exists ? (index - row * tiles_per_row) * kTileColumns : 0;
    logits = rows.logits + row * rows.stride + first;
    width = exists ? static_cast<int>(min(int64_t{kTileColumns}, rows.columns - first)) : 0;
  }
  // Bytes of the width rounded up to a multiple of four columns; the row stride has room for them.
  __device__ uint32_t load_size() const { return static_cast<uint32_t>(width + 3) / 4 * 16; }
};

// One warp's ring. Lanes 0..7 each copy one tile of a step.
struct Ring {
  float* stages;
  uint64_t* full;
  int lane;

  __device__ void load(const LogitRows& rows, int64_t tiles_per_row, int64_t step, int stage) {
    const Tile tile(rows, tiles_per_row, step * kTilesPerStep + lane);
    const uint32_t bytes = lane < kTilesPerStep ? tile.load_size() : 0;
    const uint32_t all = __reduce_add_sync(0xffffffffu, bytes);
    if (all == 0) return;
    if (lane == 0) arrive_expect_bytes(full + stage, all);
    __syncwarp();
    if (bytes > 0) load_bytes(at(stage, lane), tile.logits, bytes, full + stage);
  }
  __device__ float* at(int stage, int tile) const {
    return stages + stage * kStageFloats + tile * kPitch;
  }
};

// Divides a lane's values in registers and writes them back to their place in shared memory.
__device__ __forceinline__ void divide_in_place(float (&z)[kLaneValues], float* shared, int q,
                                                float temperature) {
  LogitDivider(temperature).divide_all(z);
#pragma unroll
  for (int k = 0; k < kLaneValues; k += 2) {
    *reinterpret_cast<float2*>(shared + tile_column(q, k)) = make_float2(z[k], z[k + 1]);
  }
}

// Lanes 0..7 each store one tile of a step. If the width is not a multiple of four, the last
// columns are stored one by one.
__device__ __forceinline__ void store_tile(const Tile& tile, const float* shared) {
  const int whole = tile.width / 4 * 4;
  if (whole > 0) store_bytes(tile.logits, shared, static_cast<uint32_t>(whole) * 4);
  for (int c = whole; c < tile.width; ++c) tile.logits[c] = shared[c];
}

template <bool kDivide, bool kWrite, bool kWeighted>
__global__ void __launch_bounds__(kWarps * 32)
    stream_tiles(TilePartials partials, LogitRows rows, RowTemperatures temperatures) {
  extern __shared__ __align__(128) float shared[];
  __shared__ uint64_t barriers[kWarps * kStages];
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int q = lane % kLanesPerTile;
  Ring ring = {shared + warp * kStages * kStageFloats, barriers + warp * kStages, lane};
  if (lane == 0) {
    for (int s = 0; s < kStages; ++s) init_mbarrier(ring.full + s, 1);
    fence_mbarrier_init();
  }
  __syncwarp();
  enter_kernel();

  const int64_t tiles = rows.rows * partials.tiles;
  const int64_t steps = (tiles + kTilesPerStep - 1) / kTilesPerStep;
  const int64_t stride = int64_t{gridDim.x} * kWarps;
  const int64_t first = int64_t{blockIdx.x} * kWarps + warp;
  // If quotients are stored, a stage is refilled one step later, after the store has read the
  // quotients.
  constexpr int kAhead = kWrite ? kStages - 1 : kStages;
  for (int s = 0; s < kAhead; ++s) {
    ring.load(rows, partials.tiles, first + s * stride, s);
  }
  StageCursor cursor;
  for (int64_t step = first; step < steps; step += stride, cursor.advance(kStages)) {
    const int64_t unit = step * kTilesPerStep + lane / kLanesPerTile;
    const Tile tile(rows, partials.tiles, unit);
    float* const own = ring.at(cursor.stage, lane / kLanesPerTile);
    wait(ring.full + cursor.stage, cursor.parity);
    float z[kLaneValues];
#pragma unroll
    for (int k = 0; k < kLaneValues; k += 2) {
      const float2 pair = *reinterpret_cast<const float2*>(own + tile_column(q, k));
      z[k] = pair.x;
      z[k + 1] = pair.y;
    }
    if constexpr (kDivide) {
      const float temperature = temperatures.of(tile.row);
      if (!kWrite) {
        if (temperature != 1.0f) LogitDivider(temperature).divide_all(z);
      } else if (temperature != 1.0f) {
        divide_in_place(z, own, q, temperature);
      }
    }
    if constexpr (kWrite) {
      fence_shared_for_async();
      __syncwarp();
      const Tile stored(rows, partials.tiles, step * kTilesPerStep + lane);
      if (lane < kTilesPerStep && stored.width > 0 && temperatures.of(stored.row) != 1.0f) {
        store_tile(stored, ring.at(cursor.stage, lane));
      }
      commit_stores();
      wait_stores_read<1>();
      __syncwarp();
      const int previous = (cursor.stage + kStages - 1) % kStages;
      ring.load(rows, partials.tiles, step + kAhead * stride, previous);
    } else {
      __syncwarp();
      ring.load(rows, partials.tiles, step + kAhead * stride, cursor.stage);
    }
    if (tile.width < kTileColumns) {
#pragma unroll
      for (int k = 0; k < kLaneValues; ++k) {
        if (tile_column(q, k) >= tile.width) z[k] = -kInfinity;
      }
    }
    const TileSum sums = sum_tile<kWeighted>([&z](int k) { return z[k]; });
    if (q != 0 || tile.width == 0) continue;
    partials.maximum[unit] = sums.maximum;
    partials.sum[unit] = sums.sum;
    if constexpr (kWeighted) partials.weighted[unit] = sums.weighted;
  }
  if constexpr (kWrite) wait_stores();
}

}  // namespace

cudaError_t launch_streamed_tile_pass(const TilePartials& partials, const LogitRows& rows,
                                      const RowTemperatures& temperatures, bool write,
                                      cudaStream_t stream) {
  const bool divide = temperatures.by_row != nullptr || temperatures.value != 1.0f;
  const bool weighted = partials.weighted != nullptr;
  auto kernel = weighted ? stream_tiles<false, false, true> : stream_tiles<false, false, false>;
  if (divide) {
    kernel = weighted ? stream_tiles<true, false, true> : stream_tiles<true, false, false>;
    if (write) kernel = weighted ? stream_tiles<true, true, true> : stream_tiles<true, true, false>;
  }
  return launch(kernel, {kMultiprocessors, kWarps * 32, kSharedBytes}, stream, partials, rows,
                temperatures);
}

}  // namespace slimexx::kernels::vocabulary
