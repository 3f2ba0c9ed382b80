// Few rows: a sequence has at most 32 (token, head) rows, as in decode. A thread block takes a
// segment of a sequence's keys; the kernel merge_latent combines the segments. The walk, roles and
// barriers are those of rows.cu, with operands swapped (column_form.cuh). If segments are few, a
// cluster of thread blocks takes each one (cluster_rows.cu). FP8 keys have another producer
// (f8_load.cuh).
//
// Cost of a block of 64 keys and 24 rows: 72 KB of keys take 3700 clocks at 4.27 TB/s over 132 SMs.
// Both products read the keys from shared memory as the A operand, in 36 and 32 steps of 2 KB: 1100
// clocks at 128 B/clk. Maxima, 12 exponentials per thread and two barriers take about 500 clocks.
// So a stage is released in half the time that loading its keys takes.
#include <algorithm>
#include <type_traits>

#include "kernels/common/device.h"
#include "kernels/common/early_launch.cuh"
#include "kernels/latent_attention/column_store.cuh"
#include "kernels/latent_attention/f8_load.cuh"

namespace slimexx::kernels::latent_attention {
namespace {

template <int kGroup, int kRows>
using Walk = BlockWalk<ColumnForm<kGroup, kRows>>;

template <int kGroup, int kRows>
__device__ __forceinline__ void compute_items(const Problem& problem,
                                              typename Walk<kGroup, kRows>::Layout shared) {
  const int heads = problem.attention.group;
  Walk<kGroup, kRows> walk{{shared, problem.attention.c}};
  walk.release_queries = true;
  ItemQueue items = shared.items();
  uint32_t item_count = 0;
  for (Item item; (item = items.take()).rows > 0; ++item_count) {
#pragma unroll
    for (int n = 0; n < walk.kOwnRows; ++n) {
      const int row = walk.row_of(n);
      walk.position[n] = row < item.rows ? item.position(row, heads) : -1;
    }
    wait(shared.queries_full(), item_count % 2);
    walk.walk(item.first_block, item.last_block, item.keys, (item.position(0, heads) + 1) / kBlock);
    walk.join_sums();
    int64_t begins[kRows / 8];
    find_output_rows<kRows>(problem, item, begins);
    store_columns<kRows>(problem, item, walk.output, walk.position, walk.maximum, walk.row_sum,
                         begins, kGroup * (kValues / 2), kGroup == 0);
  }
}

// With FP8 keys: groups of rows in flight per loading warp, and registers per thread.
template <int kRows>
struct F8Registers {
  static constexpr int kGroups = kRows <= 24 ? 4 : 2;
  static constexpr int kComputing = kRows <= 24 ? 128 : 160, kLoading = 504 - 2 * kComputing;
};

// Keys: KeyBoxes or F8Keys.
template <int kRows, class Keys>
__global__ void __launch_bounds__(kThreads, 1)
    attend_few_latent(const __grid_constant__ Problem problem,
                      const __grid_constant__ CUtensorMap query_map,
                      const __grid_constant__ CUtensorMap query_rotary_map,
                      const __grid_constant__ Keys keys) {
  constexpr bool kF8 = std::is_same_v<Keys, F8Keys>;
  using Registers = F8Registers<kRows>;
  extern __shared__ __align__(1024) uint8_t memory[];
  const typename ColumnForm<0, kRows>::Layout shared{shared_address(memory)};
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
  // The shuffle tells the compiler that all lanes have the same value.
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 128), 0) - 1;
  allow_next_grid();
  // The previous kernels wrote the queries, the newest keys and, unless context_is_written, perhaps
  // the context. The warps that load keys wait for them later.
  const bool loads_keys = threadIdx.x < (kF8 ? 128 : 64);
  const auto await = [&] {
    if (!loads_keys || !problem.attention.context_is_written) await_previous_grids();
  };
  if constexpr (!kF8) await();
  if (group < 0) {
    const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 32), 0);
    if constexpr (kF8) {
      grow_registers<Registers::kLoading>();
      await();
      load_f8_items<Items::kSplit, Registers::kGroups>(problem.attention, keys, query_map,
                                                       query_rotary_map, shared,
                                                       !problem.attention.context_is_written);
    } else if (warp < 3) {
      load_items_together(problem.attention,
                          {query_map, query_rotary_map, keys.map, keys.rotary_map}, shared, warp);
    }
  } else {
    if constexpr (kF8) {
      shrink_registers<Registers::kComputing>();
      await();
    }
    if (group == 0) {
      compute_items<0, kRows>(problem, {shared.base});
    } else {
      compute_items<1, kRows>(problem, {shared.base});
    }
  }
}

template <int kRows>
cudaError_t launch(const Launch& launch, cudaStream_t stream) {
  int sm_count = 0;
  const cudaError_t error = count_multiprocessors(sm_count);
  if (error != cudaSuccess) return error;
  const int64_t items =
      static_cast<int64_t>(launch.max_segments) * launch.problem.attention.sequences;
  return with_keys(launch, [&]<class Keys>(const Keys& keys) {
    return launch_early(attend_few_latent<kRows, Keys>,
                        {dim3(static_cast<unsigned>(std::min<int64_t>(items, sm_count))), kThreads,
                         ColumnForm<0, kRows>::Layout::kBytes},
                        stream, launch.problem, launch.query_map, launch.query_rotary_map, keys);
  });
}

}  // namespace

cudaError_t launch_few_rows(const Launch& parameters, cudaStream_t stream) {
  const int64_t segments =
      static_cast<int64_t>(parameters.max_segments) * parameters.problem.attention.sequences;
  if (segments <= kMostClusters) return launch_cluster_rows(parameters, stream);
  cudaError_t (*const by_rows[])(const Launch&, cudaStream_t) = {launch<8>, launch<16>, launch<24>,
                                                                 launch<32>};
  const cudaError_t error = by_rows[parameters.query_rows / 8 - 1](parameters, stream);
  const bool merges = parameters.max_segments > 1;
  return error == cudaSuccess && merges ? launch_merge(parameters, stream) : error;
}

}  // namespace slimexx::kernels::latent_attention
