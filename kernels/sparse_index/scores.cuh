// Scores of a tile of queries against blocks of 64 keys of their sequence. Keys are the rows of the
// product and (query, head) pairs its columns: 1 query, or enough queries for 256 columns. So one
// quad of lanes holds all heads of a query, and weighs and adds them in registers.
//
// Roles: in warpgroup 0 one warp loads keys (three warps if they are FP8), and one finds items and
// loads their queries and weights. Warpgroups 1 and 2 compute alternate key blocks, so that one
// weighs while the other multiplies. Barriers: each stage of keys has full (1 arrival, the loading
// warp) and empty (4, lane 0 of each warp of the warpgroup that owns the block); each of two query
// tiles has full (2, one for the TMA loads, one for the weights) and empty (8).
//
// Cost of a block of 64 keys of 128 elements: its 16 KB take 880 clocks at 4.27 TB/s over 132 SMs.
// With 256 columns the products take 1024 clocks at 4096 FLOP/clk/SM. Each warp has 128 maxima at
// half rate, 128 additions, 32 loads of weights and 12 shuffles: about 450 clocks, hidden under the
// other warpgroup's products. So decode is bound by memory, and training by the tensor cores.
//
// Shared memory, 256 columns of 128 elements: two query tiles 128 KB, six stages of keys 96 KB.
#pragma once
#include <type_traits>

#include "kernels/common/early_launch.cuh"
#include "kernels/sparse_index/f8_load.cuh"
#include "kernels/sparse_index/weigh.cuh"

namespace slimexx::kernels::sparse_index {

// Keys: CUtensorMap or F8Keys.
template <class S, class Keys>
__global__ void __launch_bounds__(kScoreThreads, 1)
    score_keys(const __grid_constant__ Problem problem, const __grid_constant__ CUtensorMap queries,
               const __grid_constant__ Keys keys) {
  constexpr bool kF8 = std::is_same_v<Keys, F8Keys>;
  extern __shared__ __align__(1024) uint8_t memory[];
  const Shared<S> shared{shared_address(memory)};
  if (threadIdx.x == 0) {
    if (shared.base % 1024 != 0) __trap();  // the swizzle is a function of the address
    prefetch_tensor_map(&queries);
    if constexpr (kF8) {
      shared.init(kArrivalsPerWarp);
    } else {
      prefetch_tensor_map(&keys);
      shared.init();
    }
  }
  __syncthreads();
  enter_kernel();
  // The shuffle tells the compiler that all lanes have the same value.
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 32), 0);
  if (kF8 ? warp < 4 && warp != 1 : warp == 0) {
    if constexpr (kF8) {
      load_f8_keys<S>(problem, keys, shared, warp == 0 ? 0 : warp - 1);
    } else {
      load_keys<S>(problem, &keys, shared);
    }
  } else if (warp == 1) {
    load_queries<S>(problem, &queries, shared);
  } else if (warp >= 4) {
    score_items<S>(problem, shared, warp / 4 - 1);
  }
}

template <class S>
cudaError_t launch_scores(const Launch& launch, cudaStream_t stream) {
  const auto run = [&]<class Keys>(const Keys& keys) {
    return launch_early(score_keys<S, Keys>, {dim3(launch.grid), kScoreThreads, Shared<S>::kBytes},
                        stream, launch.problem, launch.query_map, keys);
  };
  return launch.f8_keys.bytes != nullptr ? run(launch.f8_keys) : run(launch.key_map);
}

// Launches the kernel for tiles of one query, or of as many queries as fill 256 columns.
template <int kHeads>
cudaError_t launch_heads(const Launch& launch, cudaStream_t stream) {
  constexpr int kMany = kMostColumns / kHeads;
  if (launch.head_boxes == 1) {
    return launch.tile_queries == 1 ? launch_scores<Shape<kHeads, 1, 1>>(launch, stream)
                                    : launch_scores<Shape<kHeads, kMany, 1>>(launch, stream);
  }
  return launch.tile_queries == 1 ? launch_scores<Shape<kHeads, 1, 2>>(launch, stream)
                                  : launch_scores<Shape<kHeads, kMany, 2>>(launch, stream);
}

}  // namespace slimexx::kernels::sparse_index
