// For kernels that do not sum over a row: a row is cut into equal tiles of chunks, one thread block
// per tile, so that few rows still fill the device.
#pragma once
#include "kernels/rows/launch.cuh"

namespace slimexx::kernels::rows {

struct RowTiles {
  int tiles, tile_chunks, threads;  // tiles per row, chunks per tile, threads per block
};

// At most `per_thread` chunks for each of at most 256 threads.
inline RowTiles choose_row_tiles(int64_t width, int per_thread) {
  const int64_t chunks = divide_up(width, kChunk);
  const int64_t tiles = divide_up(chunks, int64_t{256} * per_thread);
  const int64_t tile_chunks = divide_up(chunks, tiles);
  return {static_cast<int>(tiles), static_cast<int>(tile_chunks),
          static_cast<int>(divide_up(divide_up(tile_chunks, per_thread), 32) * 32)};
}

inline bool fits_grid(int64_t rows, const RowTiles& tiles) {
  return rows >= 0 && rows * tiles.tiles <= INT_MAX;
}

struct TilePlace {
  int64_t row;
  int begin, end;  // chunks
};

// Block b owns tile b % tiles of row b / tiles.
__device__ __forceinline__ TilePlace find_tile(const RowTiles& t, int width) {
  const unsigned row = blockIdx.x / static_cast<unsigned>(t.tiles);
  const int tile = static_cast<int>(blockIdx.x - row * static_cast<unsigned>(t.tiles));
  const int chunks = (width + kChunk - 1) / kChunk;
  return {row, tile * t.tile_chunks, min((tile + 1) * t.tile_chunks, chunks)};
}

}  // namespace slimexx::kernels::rows
