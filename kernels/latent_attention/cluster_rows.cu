// Few rows of few sequences, as when one sequence decodes: a cluster of eight thread blocks takes a
// segment of keys, in rounds of eight blocks of 64. What bounds one thread block (few_rows.cu) is a
// chain: scores, the rows' new maxima, weights, outputs, then the next block's. Scores of all
// blocks are independent, and so are columns of the output. So each thread block
//   1. forms the scores of one block of the round, and tells all the rows' maxima over it;
//   2. finds the maxima and decays of all blocks of the round, as the chain has them;
//   3. weighs its scores, and sends weights and their sums to the others;
//   4. multiplies all blocks, in ascending order, with its own 64 columns of the values.
// The operations on a row, and their order, are those of column_form.cuh, hence the same bits.
//
// Roles: one warpgroup does all; its warp 0 issues copies, one round ahead. Barriers: full of the
// queries, of each of nine boxes of keys, of each block's values (1 arrival each) and weights
// (1, with the bytes that its owner sends). A barrier of the cluster stands before step 2; it also
// tells that everybody is done with the round before.
//
// Cost of a round, 24 rows: 72 KB of keys and 64 KB of values (from L2: another thread block reads
// them as keys); 36 steps of scores, eight times four steps of values, each about 25 clocks.
#include "kernels/common/device.h"
#include "kernels/common/early_launch.cuh"
#include "kernels/latent_attention/cluster_load.cuh"
#include "kernels/latent_attention/cluster_walk.cuh"
#include "kernels/latent_attention/column_store.cuh"

namespace slimexx::kernels::latent_attention {
namespace {

template <int kRows>
__device__ __forceinline__ void attend_item(const Problem& problem, const Maps& maps,
                                            ClusterShared<kRows> shared, const Item& item,
                                            int rank) {
  using Layout = ClusterShared<kRows>;
  const attention::Problem& p = problem.attention;
  const ClusterLoader<kRows> loader{p, maps, shared, item, rank};
  ClusterWalk<kRows> walk{shared, rank, p.c};
  const bool loads = threadIdx.x < 32;
  if (loads) {
    // The previous kernels wrote queries, the last keys, and perhaps what stands before them.
    const int written = attention::count_written_blocks(p, item.context, kBlock);
    const int own = item.first_block + rank;
    const bool early = own < written;
    if (early) loader.load_keys(own);
    loader.load_values(item.first_block, 0, min(written, item.last_block));
    await_previous_grids();
    loader.load_queries();
    if (!early) loader.load_keys(own);
    loader.load_values(item.first_block, written, item.last_block);
  }
#pragma unroll
  for (int i = 0; i < kRows / 2; ++i) walk.output[0][i] = 0.0f;
#pragma unroll
  for (int n = 0; n < walk.kOwnRows; ++n) {
    const int row = walk.row_of(n);
    walk.position[n] = row < item.rows ? item.position(row, p.group) : -1;
  }
  if (threadIdx.x < kRows) {
    store_shared(shared.running(0) + threadIdx.x * 4, attention::minus_infinity());
  }
  const int first_masked = (item.position(0, p.group) + 1) / kBlock;
  const auto missing = [&](int block) { return max((block + 1) * kBlock - item.keys, 0); };
  wait(shared.queries_full(), 0);
  int round = 0;
  for (int first = item.first_block; first < item.last_block; first += kRound, ++round) {
    const int count = min(kRound, item.last_block - first), own = first + rank;
    const uint32_t parity = round % 2;
    if (threadIdx.x < count && threadIdx.x != rank) {
      arrive_expect_bytes(shared.weights_full(threadIdx.x),
                          Layout::kWeightBytes + Layout::kSumBytes);
    }
    if (rank < count) {
      walk.form_scores(missing(own), parity);
      if (own >= first_masked) walk.mask(own);
      float highest[walk.kOwnRows];
      find_highest<kRows>(walk.scores, shared.scratch(), kOwnBarrier, highest);
      if (loads) {
        walk.tell_maxima(highest);
        loader.load_keys(own + kRound);
      }
    }
    sync_cluster();
    walk.find_decays(round, count);
    if (rank < count) walk.send_weights();
    for (int i = 0; i < count; ++i) walk.join_block(i, missing(first + i), parity);
    sync_named(kOwnBarrier, kClusterThreads);
    if (loads) loader.load_values(first + kRound, 0, item.last_block);
  }
  allow_next_grid();  // a product, whose weights would have come before the keys
  walk.join_sums();
  float maximum[walk.kOwnRows], sum[walk.kOwnRows];
#pragma unroll
  for (int n = 0; n < walk.kOwnRows; ++n) {
    maximum[n] = walk.of_row(shared.running(round), n);
    sum[n] = walk.of_row(shared.offsets(), n);
  }
  store_columns<kRows>(problem, item, walk.output, walk.position, maximum, sum, rank * kBoxColumns,
                       rank == 0);
}

template <int kRows>
__global__ void __launch_bounds__(kClusterThreads, 1)
    attend_cluster_latent(const __grid_constant__ Problem problem,
                          const __grid_constant__ CUtensorMap query_map,
                          const __grid_constant__ CUtensorMap query_rotary_map,
                          const __grid_constant__ CUtensorMap key_map,
                          const __grid_constant__ CUtensorMap key_rotary_map) {
  extern __shared__ __align__(1024) uint8_t memory[];
  const ClusterShared<kRows> shared{shared_address(memory)};
  if (threadIdx.x == 0) {
    if (shared.base % 1024 != 0) __trap();  // the swizzle is a function of the address
    prefetch_tensor_map(&query_map);
    prefetch_tensor_map(&query_rotary_map);
    prefetch_tensor_map(&key_map);
    prefetch_tensor_map(&key_rotary_map);
    shared.init();
  }
  sync_cluster();  // others write to these barriers
  if (threadIdx.x >= 32 || !problem.attention.context_is_written) await_previous_grids();
  WorkCursor cursor;
  Item item;
  if (find_item<false, kRows>(problem.attention, cursor, static_cast<int>(blockIdx.x) / kRound,
                              item) &&
      item.first_block < item.last_block) {
    attend_item<kRows>(problem, {query_map, query_rotary_map, key_map, key_rotary_map}, shared,
                       item, static_cast<int>(cluster_rank()));
  }
  sync_cluster();  // what was sent has left this thread block
}

template <int kRows>
cudaError_t launch(const Launch& launch, cudaStream_t stream) {
  const auto blocks =
      static_cast<unsigned>(kRound * launch.max_segments * launch.problem.attention.sequences);
  return launch_early(attend_cluster_latent<kRows>,
                      {dim3(blocks), kClusterThreads, ClusterShared<kRows>::kBytes, kRound}, stream,
                      launch.problem, launch.query_map, launch.query_rotary_map, launch.key_map,
                      launch.key_rotary_map);
}

}  // namespace

cudaError_t launch_cluster_rows(const Launch& parameters, cudaStream_t stream) {
  cudaError_t (*const by_rows[])(const Launch&, cudaStream_t) = {launch<8>, launch<16>, launch<24>,
                                                                 launch<32>};
  const cudaError_t error = by_rows[parameters.query_rows / 8 - 1](parameters, stream);
  const bool merges = parameters.max_segments > 1;
  return error == cudaSuccess && merges ? launch_merge(parameters, stream) : error;
}

}  // namespace slimexx::kernels::latent_attention
