// The producer of a cluster's thread block for FP8 keys: four warps do what the one warp of
// cluster_load.cuh does for bf16 keys. Rows of bytes are loaded into registers as early as
// possible, and stored as bf16 when the thread block has read the round before.
#pragma once
#include "kernels/common/warp_release.cuh"
#include "kernels/latent_attention/cluster_load.cuh"
#include "kernels/latent_attention/f8_keys.cuh"

namespace slimexx::kernels::latent_attention {

// A warp's part of the values of a round: this thread block's 64 columns of two key blocks, in 16
// pieces of eight rows. Four lanes have a row.
struct F8Values {
  static constexpr int kPieces = 2 * kBlock / 8;
  uint4 values[kPieces] = {};
  float scales[kPieces] = {};

  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x % 32); }

  // `row`: lane i has the number of the first row of piece i in the tensor of keys. `exists`: lane
  // i has a bit for each row of piece i that is to be loaded.
  __device__ __forceinline__ void load(const F8Keys& keys, int rank, int row, uint32_t exists) {
    const int column = rank * kBoxColumns + lane() % 4 * 16;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int64_t own = __shfl_sync(0xffffffffu, row, i) + lane() / 4;
      const uint32_t bits = __shfl_sync(0xffffffffu, exists, i);
      const bool loads = (bits >> (lane() / 4) & 1) != 0 && column < keys.value_dim;
      const uint8_t* from = keys.rows + own * keys.stride;
      load_if(values[i], loads, from + column);
      load_if(scales[i], loads, from + keys.scales_at + column / kF8Group * 4);
    }
  }
  // Stores the first or second key block. Lanes of even and odd rows use different banks.
  __device__ __forceinline__ void store(int which, uint32_t to) const {
#pragma unroll
    for (int i = 0; i < kPieces / 2; ++i) {
      const uint4& x = values[which * (kPieces / 2) + i];
      const uint32_t scale = pair_of(scales[which * (kPieces / 2) + i]);
      const uint32_t at = to + swizzled_offset(i * 8 + lane() / 4, lane() % 4 * 2);
      store_chunk(at, dequantise_chunk(x.x, x.y, scale));
      store_chunk(at ^ 16, dequantise_chunk(x.z, x.w, scale));
    }
  }
};

template <int kRows>
struct ClusterF8Loader {
  const attention::Problem& problem;
  const F8Keys& keys;
  ClusterShared<kRows> shared;
  Item item;
  int rank;
  F8Rows<kKeyGroups> own;  // the warp's rows of the thread block's key block
  F8Values values;

  static __device__ __forceinline__ int warp() {
    return static_cast<int>(threadIdx.x) / 32 - kClusterComputing / 32;
  }
  __device__ __forceinline__ int find_row(int position) const {
    return row_in_page(problem, read_page(problem, item.sequence, position), position);
  }

  // Loads positions [from, to) of the round that starts at key block `first`. The consumer clears
  // keys that do not exist.
  __device__ __forceinline__ void load(int first, int from, int to) {
    const int lane = threadIdx.x % 32;
    const int of_key = (first + rank) * kBlock + warp() * kWarpKeys + lane % kWarpKeys;
    const int key_row = of_key >= from && of_key < to ? find_row(of_key) : -1;
    const int of_piece = (first + 2 * warp()) * kBlock + lane % F8Values::kPieces * 8;
    const int begin = max(from - of_piece, 0), end = min(to - of_piece, 8);
    const uint32_t exists = begin < end ? (1u << end) - (1u << begin) : 0;
    const int piece_row = exists != 0 ? find_row(of_piece) : 0;
    own.template load<true>(keys, 0, key_row);
    values.load(keys, rank, piece_row, exists);
  }
  // One arrival of the warp for everything that it has stored.
  __device__ __forceinline__ void signal(uint32_t barrier) const {
    fence_shared_for_async();
    kernels::release(barrier);
  }
  __device__ __forceinline__ void store_keys(int first) const {
    if (first + rank >= item.last_block) return;
    own.turned().store(0, shared.keys() + warp() * (kWarpKeys * 128));
    signal(shared.keys_full());
  }
  __device__ __forceinline__ void store_values(int first) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int block = 2 * warp() + i;
      if (first + block >= item.last_block) return;
      values.store(i, shared.values(block));
      signal(shared.values_full(block));
    }
  }
};

// Run by the loading warps.
template <int kRows>
__device__ __forceinline__ void load_item(ClusterF8Loader<kRows>& loader,
                                          const CUtensorMap& query_map,
                                          const CUtensorMap& query_rotary_map) {
  const Item& item = loader.item;
  const int end = min(item.keys, item.last_block * kBlock);
  const int written = attention::count_written_blocks(loader.problem, item.context, 1);
  int first = item.first_block;
  loader.load(first, 0, min(written, end));
  await_previous_grids();  // they wrote queries, the newest keys and perhaps the context
  loader.load(first, written, end);
  if (loader.warp() == 0 && first + loader.rank < item.last_block) {
    load_queries(query_map, query_rotary_map, loader.shared, item);
  }
  loader.store_keys(first);
  loader.store_values(first);
  for (first += kRound; first < item.last_block; first += kRound) {
    loader.load(first, 0, end);
    sync_named(kKeysAreRead, kClusterComputing + kClusterF8Loading);
    loader.store_keys(first);
    sync_named(kValuesAreRead, kClusterComputing + kClusterF8Loading);
    loader.store_values(first);
  }
}

}  // namespace slimexx::kernels::latent_attention
