// One pass over logits in memory: divides by the temperature and computes every tile's partial
// result.
//
// This kernel is for few tiles; streamed_tile_pass.cu is for many. Four lanes read a tile in pairs
// of columns, 32 bytes (one sector) at a time. The lanes keep the whole tile in registers from the
// maximum to the sum, so memory is read once.
#include <cuda_runtime.h>

#include "kernels/common/device.h"
#include "kernels/vocabulary/launch.cuh"

namespace slimexx::kernels::vocabulary {
namespace {

constexpr int kThreads = 256;
// From this number of tiles on, launch_streamed_tile_pass is used: each of its warps (8 per block)
// then has two steps of 8 tiles.
constexpr int64_t kStreamedTiles = int64_t{kMultiprocessors} * 8 * 8 * 2;

template <bool kDivide, bool kWrite, bool kWeighted>
__global__ void __launch_bounds__(kThreads)
    sum_tiles(TilePartials partials, LogitRows rows, RowTemperatures temperatures) {
  enter_kernel();
  const int64_t unit = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / kLanesPerTile;
  const bool active = unit < rows.rows * partials.tiles;
  const int64_t row = active ? unit / partials.tiles : 0;
  const int64_t first_column = (unit - row * partials.tiles) * kTileColumns;
  const int q = static_cast<int>(threadIdx.x % kLanesPerTile);
  const int width =
      active ? static_cast<int>(min(int64_t{kTileColumns}, rows.columns - first_column)) : 0;
  float* at = rows.logits + row * rows.stride + first_column + 2 * q;

  float z[kLaneValues];
  if (width == kTileColumns) {
#pragma unroll
    for (int k = 0; k < kLaneValues; k += 2) {
      const float2 pair = *reinterpret_cast<const float2*>(at + 4 * k);
      z[k] = pair.x;
      z[k + 1] = pair.y;
    }
  } else {
#pragma unroll
    for (int k = 0; k < kLaneValues; ++k) {
      z[k] = tile_column(q, k) < width ? at[4 * (k - k % 2) + k % 2] : -kInfinity;
    }
  }
  if constexpr (kDivide) {
    const float temperature = temperatures.of(row);
    if (temperature != 1.0f) {
      LogitDivider(temperature).divide_all(z);
      if constexpr (kWrite) {
#pragma unroll
        for (int k = 0; k < kLaneValues; k += 2) {
          if (tile_column(q, k + 1) < width) {
            *reinterpret_cast<float2*>(at + 4 * k) = make_float2(z[k], z[k + 1]);
          } else if (tile_column(q, k) < width) {
            at[4 * k] = z[k];
          }
        }
      }
      // Division by a negative or NaN temperature has changed the -inf of absent columns.
      if (width < kTileColumns) {
#pragma unroll
        for (int k = 0; k < kLaneValues; ++k) {
          if (tile_column(q, k) >= width) z[k] = -kInfinity;
        }
      }
    }
  }
  const TileSum tile = sum_tile<kWeighted>([&z](int k) { return z[k]; });
  if (!active || q != 0) return;
  partials.maximum[unit] = tile.maximum;
  partials.sum[unit] = tile.sum;
  if constexpr (kWeighted) partials.weighted[unit] = tile.weighted;
}

}  // namespace

TilePartials place_partials(void* workspace, int64_t rows, int64_t columns, bool weighted) {
  TilePartials partials;
  partials.tiles = count_tiles(columns);
  partials.maximum = static_cast<float*>(workspace);
  partials.sum = partials.maximum + rows * partials.tiles;
  if (weighted) partials.weighted = partials.sum + rows * partials.tiles;
  return partials;
}

size_t partials_bytes(int64_t rows, int64_t columns, bool weighted) {
  return static_cast<size_t>(rows * count_tiles(columns)) * sizeof(float) * (weighted ? 3 : 2);
}

cudaError_t launch_tile_pass(const TilePartials& partials, const LogitRows& rows,
                             const RowTemperatures& temperatures, bool write, cudaStream_t stream) {
  if (rows.rows <= 0 || rows.columns <= 0) return cudaSuccess;
  if (rows.stride % 4 != 0 || reinterpret_cast<uintptr_t>(rows.logits) % 16 != 0) {
    return cudaErrorInvalidValue;
  }
  const bool divide = temperatures.by_row != nullptr || temperatures.value != 1.0f;
  const bool weighted = partials.weighted != nullptr;
  auto kernel = weighted ? sum_tiles<false, false, true> : sum_tiles<false, false, false>;
  if (divide) {
    kernel = weighted ? sum_tiles<true, false, true> : sum_tiles<true, false, false>;
    if (write) kernel = weighted ? sum_tiles<true, true, true> : sum_tiles<true, true, false>;
  }
  const int64_t tiles = rows.rows * partials.tiles, threads = tiles * kLanesPerTile;
  if (tiles >= kStreamedTiles) {
    return launch_streamed_tile_pass(partials, rows, temperatures, write, stream);
  }
  // Blocks of one warp spread few rows over all multiprocessors.
  const int block = threads < int64_t{kMultiprocessors} * kThreads ? 32 : kThreads;
  return launch(kernel, {(threads + block - 1) / block, block}, stream, partials, rows,
                temperatures);
}

}  // namespace slimexx::kernels::vocabulary
