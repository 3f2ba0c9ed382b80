// Sparse latent attention: every query has a list of the keys that it sees. A thread block takes up
// to 64 heads of one token and walks the token's list in blocks of 64 entries, as rows.cu walks the
// keys of a sequence. Items, barriers and the consumer are those of rows.cu, except that four warps
// load keys (gather.cuh) and 128 threads arrive at each full barrier, which covers two boxes.
//
// Cost of a block: 2176 tensor-core clocks, as in rows.cu; 72 KB that only this thread block reads,
// 34 B/clk from L2; 4608 copies of 16 bytes, 144 warp instructions.
//
// Registers: 56 loading, 224 computing; with FP8 keys (f8_load.cuh) 72 and 216.
#include <algorithm>
#include <type_traits>

#include "kernels/common/device.h"
#include "kernels/common/early_launch.cuh"
#include "kernels/latent_attention/f8_load.cuh"
#include "kernels/latent_attention/row_items.cuh"

namespace slimexx::kernels::latent_attention {
namespace {

using Layout = RowForm<0>::Layout;

// Keys: KeyLists or F8Keys.
template <class Keys>
__global__ void __launch_bounds__(kThreads, 1)
    attend_listed(const __grid_constant__ Problem problem, const __grid_constant__ Keys keys,
                  const __grid_constant__ CUtensorMap query_map,
                  const __grid_constant__ CUtensorMap query_rotary_map) {
  constexpr bool kF8 = std::is_same_v<Keys, F8Keys>;
  constexpr bool kGathered = !kF8;  // see RowForm
  extern __shared__ __align__(1024) uint8_t memory[];
  const Layout shared{shared_address(memory)};
  if (threadIdx.x == 0) {
    if (shared.base % 1024 != 0) __trap();  // the swizzle is a function of the address
    prefetch_tensor_map(&query_map);
    prefetch_tensor_map(&query_rotary_map);
    if constexpr (kF8) {
      shared.init(kF8Loading, kF8Takers);
    } else {
      shared.init(kGatherThreads);
    }
  }
  __syncthreads();
  enter_kernel();  // the previous kernel wrote queries, lists and perhaps the lengths
  // The shuffle tells the compiler that all lanes have the same value.
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 128), 0) - 1;
  if (group < 0) {
    shrink_registers<kF8 ? 72 : 56>();
    if constexpr (kF8) {
      load_f8_items<Items::kListed, 1>(problem.attention, keys, query_map, query_rotary_map, shared,
                                       true);
    } else {
      load_listed_items(problem, keys, query_map, query_rotary_map, shared);
    }
  } else {
    grow_registers<kF8 ? 216 : 224>();
    if (group == 0) {
      compute_items<true, BlockWalk<RowForm<0, kGathered>>>(problem, {shared.base});
    } else {
      compute_items<true, BlockWalk<RowForm<1, kGathered>>>(problem, {shared.base});
    }
  }
}

}  // namespace

cudaError_t launch_listed(const Launch& parameters, cudaStream_t stream) {
  int sm_count = 0;
  const cudaError_t error = count_multiprocessors(sm_count);
  if (error != cudaSuccess) return error;
  const int64_t items =
      parameters.tokens * divide_up(parameters.problem.attention.group, kTileRows);
  // problem.merged has room for kMultiprocessors thread blocks.
  const int64_t blocks = std::min({items, int64_t{sm_count}, kMultiprocessors});
  const auto launch = [&]<class Keys>(const Keys& keys) {
    return launch_early(
        attend_listed<Keys>, {dim3(static_cast<unsigned>(blocks)), kThreads, Layout::kBytes},
        stream, parameters.problem, keys, parameters.query_map, parameters.query_rotary_map);
  };
  return parameters.has_f8_keys ? launch(parameters.f8_keys) : launch(parameters.lists);
}

}  // namespace slimexx::kernels::latent_attention
