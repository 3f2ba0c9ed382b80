// Turns the queries' lists of keys into bit masks, which the walks of wide heads read tile by tile:
// one row per query for dQ, one row per key for dK and dV. A thread block takes 64 queries and up
// to kTiles key tiles; only tiles up to the diagonal are written and read.
#include "kernels/attention_backward/items.cuh"
#include "kernels/common/sizes.h"

namespace slimexx::kernels::attention_gradient {
namespace {

constexpr int kMarkThreads = 256, kMarkWarps = kMarkThreads / 32;
constexpr int kTiles = 32;

// Index of the first key >= `key` in an ascending list of `count` keys.
__device__ __forceinline__ int find_key(const int32_t* list, int count, int key) {
  int low = 0, high = count;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (list[middle] < key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

__global__ void __launch_bounds__(kMarkThreads)
    mark_seen_keys(const __grid_constant__ Problem problem,
                   const __grid_constant__ KeyLists lists) {
  // One row per query; the odd pitch avoids bank conflicts when lanes read a column.
  __shared__ uint32_t bits[kTile][2 * kTiles + 1];
  Item item;
  int blocks = 0, half = 0;
  if (!find_walk(problem, static_cast<int>(blockIdx.x), 2, item, blocks, half)) return;
  const int query_tile = 2 * (blocks - 1) + half, first_query = query_tile * kTile;
  const int first_tile = static_cast<int>(blockIdx.y) * kTiles;
  const int tiles = min(kTiles, query_tile + 1 - first_tile);
  if (first_query >= item.length || tiles <= 0) return;
  const int lane = threadIdx.x % 32, warp = static_cast<int>(threadIdx.x) / 32;
  for (int i = threadIdx.x; i < kTile * (2 * kTiles + 1); i += kMarkThreads) (&bits[0][0])[i] = 0;
  __syncthreads();
  for (int row = warp; row < kTile && first_query + row < item.length; row += kMarkWarps) {
    const int query = first_query + row;
    const int32_t* list =
        lists.selected + static_cast<int64_t>(item.first_token + query) * lists.width;
    const int count = min(query + 1, lists.width);
    for (int i = find_key(list, count, first_tile * kTile) + lane; i < count; i += 32) {
      const auto key = static_cast<uint32_t>(list[i] - first_tile * kTile);
      if (key >= static_cast<uint32_t>(tiles * kTile)) break;
      atomicOr(&bits[row][key / 32], 1u << key % 32);
    }
  }
  __syncthreads();
  const int64_t first = find_tile_pair(item, query_tile, first_tile) * kTile;
  for (int i = threadIdx.x; i < tiles * kTile; i += kMarkThreads) {
    const int tile = i / kTile, row = i % kTile;
    problem.seen_keys[first + i] = make_uint2(bits[row][2 * tile], bits[row][2 * tile + 1]);
  }
  for (int i = warp; i < 2 * tiles; i += kMarkWarps) {  // a warp transposes 32 keys
    const uint32_t early = bits[lane][i], late = bits[lane + 32][i];
    uint2 seeing{};
#pragma unroll
    for (int key = 0; key < 32; ++key) {
      const uint32_t x = __ballot_sync(0xffffffffu, (early >> key & 1u) != 0);
      const uint32_t y = __ballot_sync(0xffffffffu, (late >> key & 1u) != 0);
      if (lane == key) seeing = make_uint2(x, y);
    }
    problem.seeing_queries[first + i * 32 + lane] = seeing;
  }
}

}  // namespace

cudaError_t launch_mark_seen_keys(const Launch& launch, const KeyLists& lists,
                                  cudaStream_t stream) {
  const Problem& p = launch.problem;
  const dim3 grid(static_cast<unsigned>(p.padded_tokens / kTile),
                  static_cast<unsigned>(divide_up(lists.tiles, kTiles)));
  mark_seen_keys<<<grid, kMarkThreads, 0, stream>>>(p, lists);
  return cudaGetLastError();
}

}  // namespace slimexx::kernels::attention_gradient
