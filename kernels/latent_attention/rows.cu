// Latent attention: a thread block walks the keys of 64 (token, head) rows: all keys (whole) or one
// segment (split). Both use the same walk and the arithmetic of
// kernels/attention/row_arithmetic.cuh, with the block and segment sizes of latent attention.
//
// How to read: problem.cuh has the items and the layout of shared memory; load.cuh is the producer;
// row_items.cuh with block_walk.cuh and row_form.cuh is the consumer. Roles: warpgroup 0 loads (one
// warp), warpgroups 1 and 2 compute. Barriers, for each of two stages of keys: full for each box of
// 64 columns (1 arrival, the loading warp); empty for each warpgroup's values (4, lane 0 of each of
// its warps) and for the rotary keys (8). Queries: full (1), empty (8). Queue of items, two deep:
// full (1), empty (8).
//
// Cost of a block of 64 keys: scores 64 x 64 x 576 and output 64 x 64 x 512, together 2176
// tensor-core clocks at 4096 FLOP/clk/SM. Its 72 KB of keys take 3700 clocks from global memory at
// 4.27 TB/s over 132 SMs, or need 34 B/clk if many tiles read them from L2. So decode is bound by
// memory, and training about equally by the tensor cores and L2.
//
// A walk through several segments keeps the merged output of earlier segments in global memory
// (L2): 128 KB of fp32, read and written once per segment of 2048 keys, so 256 KB per 70,000 clocks
// of products.
//
// FP8 keys have another producer (f8_load.cuh): four warps, one arrival of each at a full barrier.
//
// Shared memory: queries 72 KB, two blocks of keys 144 KB. Registers per thread: 128 for outputs,
// 32 for scores, 16 for weights.
#include <algorithm>
#include <type_traits>

#include "kernels/common/device.h"
#include "kernels/common/early_launch.cuh"
#include "kernels/latent_attention/f8_load.cuh"
#include "kernels/latent_attention/row_items.cuh"

namespace slimexx::kernels::latent_attention {
namespace {

using Shared = RowForm<0>::Layout;

// Keys: KeyBoxes or F8Keys.
template <bool kWhole, class Keys>
__global__ void __launch_bounds__(kThreads, 1)
    attend_latent(const __grid_constant__ Problem problem,
                  const __grid_constant__ CUtensorMap query_map,
                  const __grid_constant__ CUtensorMap query_rotary_map,
                  const __grid_constant__ Keys keys) {
  constexpr bool kF8 = std::is_same_v<Keys, F8Keys>;
  extern __shared__ __align__(1024) uint8_t memory[];
  const Shared shared{shared_address(memory)};
  if (threadIdx.x == 0) {
    if (shared.base % 1024 != 0) __trap();  // the swizzle is a function of the address
    prefetch_tensor_map(&query_map);
    prefetch_tensor_map(&query_rotary_map);
    if constexpr (kF8) {
      shared.init(kF8Loading, kF8Takers);
    } else {
      prefetch_tensor_map(&keys.map);
      prefetch_tensor_map(&keys.rotary_map);
      shared.init();
    }
  }
  __syncthreads();
  enter_kernel();  // the previous kernel wrote the queries and perhaps the lengths
  // The shuffle tells the compiler that all lanes have the same value.
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 128), 0) - 1;
  if (group < 0) {
    shrink_registers<kF8 ? 72 : 24>();
    if constexpr (kF8) {
      load_f8_items<kWhole ? Items::kWhole : Items::kSplit, 1>(problem.attention, keys, query_map,
                                                               query_rotary_map, shared, true);
    } else if (threadIdx.x < 32) {
      load_items<kWhole>(problem.attention,
                         {query_map, query_rotary_map, keys.map, keys.rotary_map}, shared);
    }
  } else {
    grow_registers<kF8 ? 216 : 240>();
    if (group == 0) {
      compute_items<kWhole, BlockWalk<RowForm<0>>>(problem, shared);
    } else {
      compute_items<kWhole, BlockWalk<RowForm<1>>>(problem, shared);
    }
  }
}

template <bool kWhole>
cudaError_t launch(const Launch& launch, int64_t items, cudaStream_t stream) {
  int sm_count = 0;
  const cudaError_t error = count_multiprocessors(sm_count);
  if (error != cudaSuccess) return error;
  // problem.merged has room for kMultiprocessors thread blocks.
  const int64_t blocks = std::min({items, int64_t{sm_count}, kMultiprocessors});
  return with_keys(launch, [&]<class Keys>(const Keys& keys) {
    return launch_early(attend_latent<kWhole, Keys>,
                        {dim3(static_cast<unsigned>(blocks)), kThreads, Shared::kBytes}, stream,
                        launch.problem, launch.query_map, launch.query_rotary_map, keys);
  });
}

}  // namespace

cudaError_t launch_whole(const Launch& parameters, cudaStream_t stream) {
  const attention::Problem& p = parameters.problem.attention;
  const cudaError_t error = cudaMemsetAsync(p.next_tile, 0, sizeof(uint32_t), stream);
  if (error != cudaSuccess) return error;
  // Upper bound: every sequence may end with a partial tile.
  return launch<true>(parameters, parameters.tokens * p.group / kTileRows + p.sequences, stream);
}

cudaError_t launch_split(const Launch& parameters, cudaStream_t stream) {
  const attention::Problem& p = parameters.problem.attention;
  const int64_t tiles = divide_up(p.max_rows, kTileRows);
  const cudaError_t error =
      launch<false>(parameters, tiles * parameters.max_segments * p.sequences, stream);
  const bool merges = parameters.max_segments > 1;
  return error == cudaSuccess && merges ? launch_merge(parameters, stream) : error;
}

}  // namespace slimexx::kernels::latent_attention
