// Few rows: a sequence has at most 32 (token, head) rows, as in decode. A thread block takes a
// segment of a sequence's keys; the kernel merge_latent joins segments. The walk is that of rows.cu
// with operands the other way round (column_form.cuh), and so are roles and barriers.
//
// Cost of a block of 64 keys and 24 rows: 72 KB of keys, at 4.27 TB/s over 132 SMs 3700 clocks.
// Both products read them from shared memory as the operand of 64 rows, 36 and 32 steps of 2 KB,
// 1100 clocks at 128 B/clk; maxima, 12 exponentials a thread and two barriers about 500. So a stage
// is free again after half the time that its keys take to come.
#include <algorithm>

#include "kernels/common/device.h"
#include "kernels/common/early_launch.cuh"
#include "kernels/latent_attention/column_form.cuh"
#include "kernels/latent_attention/load.cuh"

namespace slimexx::kernels::latent_attention {
namespace {

template <int kGroup, int kRows>
using Walk = BlockWalk<ColumnForm<kGroup, kRows>>;

// Rows whose keys all lie in the first segment are finished here; rows without keys in the segment
// write nothing. Lanes 4 apart swap values, so that each holds neighbouring columns of one row.
template <int kGroup, int kRows>
__device__ __forceinline__ void store_item(const Problem& problem, const Walk<kGroup, kRows>& walk,
                                           const Item& item) {
  const attention::Problem& p = problem.attention;
  const int segment = item.first_block / kSegmentBlocks, lane = threadIdx.x % 32;
  const bool odd = lane / 4 % 2 == 1, tells_state = kGroup == 0 && threadIdx.x % 128 < 8;
#pragma unroll
  for (int g = 0; g < kRows / 8; ++g) {
    float2 pairs[2 * walk.kTiles];
#pragma unroll
    for (int x = 0; x < 2 * walk.kTiles; ++x) {
      const float even_row = walk.output[x / 2][4 * g + x % 2 * 2];
      const float odd_row = walk.output[x / 2][4 * g + x % 2 * 2 + 1];
      const float other = __shfl_xor_sync(0xffffffffu, odd ? even_row : odd_row, 4);
      pairs[x] = odd ? make_float2(other, odd_row) : make_float2(even_row, other);
    }
    const int position = odd ? walk.position[2 * g + 1] : walk.position[2 * g];
    const float maximum = odd ? walk.maximum[2 * g + 1] : walk.maximum[2 * g];
    const float sum = odd ? walk.row_sum[2 * g + 1] : walk.row_sum[2 * g];
    if (position < segment * kLatentSegmentKeys) continue;
    const int64_t row = item.row + 8 * g + lane % 4 * 2 + (odd ? 1 : 0);
    const int column =
        kGroup * (kValues / 2) + static_cast<int>(threadIdx.x % 128) / 32 * 16 + lane / 8 * 2;
    if (position >= kLatentSegmentKeys) {
      const int64_t at = segment * p.partial_rows + row;
      if (tells_state) p.partial_state[at] = make_float2(maximum, sum);
#pragma unroll
      for (int x = 0; x < 2 * walk.kTiles; ++x) {
        *reinterpret_cast<float2*>(p.partial_output + at * kValues + column + x / 2 * 64 +
                                   x % 2 * 8) = pairs[x];
      }
      continue;
    }
    if (p.lse != nullptr && tells_state) {
      p.lse[row] = attention::log_sum_exp(maximum, sum, p.scale);
    }
    const float inverse = __frcp_rn(sum);
    uint16_t* out = p.out + row / p.group * p.out_stride + row % p.group * problem.value_dim;
#pragma unroll
    for (int x = 0; x < 2 * walk.kTiles; ++x) {
      const int own = column + x / 2 * 64 + x % 2 * 8;
      if (own < problem.value_dim) {
        *reinterpret_cast<uint32_t*>(out + own) = finish_pair(pairs[x].x, pairs[x].y, inverse);
      }
    }
  }
}

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
    store_item<kGroup, kRows>(problem, walk, item);
  }
}

template <int kRows>
__global__ void __launch_bounds__(kThreads, 1)
    attend_few_latent(const __grid_constant__ Problem problem,
                      const __grid_constant__ CUtensorMap query_map,
                      const __grid_constant__ CUtensorMap query_rotary_map,
                      const __grid_constant__ CUtensorMap key_map,
                      const __grid_constant__ CUtensorMap key_rotary_map) {
  extern __shared__ __align__(1024) uint8_t memory[];
  const typename ColumnForm<0, kRows>::Layout shared{shared_address(memory)};
  if (threadIdx.x == 0) {
    if (shared.base % 1024 != 0) __trap();  // the swizzle is a function of the address
    prefetch_tensor_map(&query_map);
    prefetch_tensor_map(&query_rotary_map);
    prefetch_tensor_map(&key_map);
    prefetch_tensor_map(&key_rotary_map);
    shared.init();
  }
  __syncthreads();
  enter_kernel();  // the previous kernel wrote queries, and perhaps the lengths
  // The same in all lanes, and the compiler may know.
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 128), 0) - 1;
  if (group < 0) {
    const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 32), 0);
    if (warp < 3) {
      load_items_together(problem.attention, {query_map, query_rotary_map, key_map, key_rotary_map},
                          shared, warp);
    }
  } else if (group == 0) {
    compute_items<0, kRows>(problem, {shared.base});
  } else {
    compute_items<1, kRows>(problem, {shared.base});
  }
}

template <int kRows>
cudaError_t launch(const Launch& launch, cudaStream_t stream) {
  int sm_count = 0;
  const cudaError_t error = count_multiprocessors(sm_count);
  if (error != cudaSuccess) return error;
  const int64_t items =
      static_cast<int64_t>(launch.max_segments) * launch.problem.attention.sequences;
  return launch_early(attend_few_latent<kRows>,
                      {dim3(static_cast<unsigned>(std::min<int64_t>(items, sm_count))), kThreads,
                       ColumnForm<0, kRows>::Layout::kBytes},
                      stream, launch.problem, launch.query_map, launch.query_rotary_map,
                      launch.key_map, launch.key_rotary_map);
}

}  // namespace

cudaError_t launch_few_rows(const Launch& parameters, cudaStream_t stream) {
  cudaError_t (*const by_rows[])(const Launch&, cudaStream_t) = {launch<8>, launch<16>, launch<24>,
                                                                 launch<32>};
  const cudaError_t error = by_rows[parameters.query_rows / 8 - 1](parameters, stream);
  const bool merges = parameters.max_segments > 1;
  return error == cudaSuccess && merges ? launch_merge(parameters, stream) : error;
}

}  // namespace slimexx::kernels::latent_attention
