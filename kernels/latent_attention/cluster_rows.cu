// Few rows of few sequences, as when one sequence decodes: a cluster of eight thread blocks takes a
// segment of keys, in rounds of eight key blocks of 64. A single thread block (few_rows.cu) would
// be bound by a dependency chain: scores, new maxima, weights, outputs, then the next key block.
// But the scores of all key blocks are independent, and so are the columns of the output. So each
// thread block
//   1. forms the scores of one key block of the round, and sends the rows' maxima to all other
//   blocks;
//   2. finds the running maxima and decays for all key blocks of the round;
//   3. turns its scores into weights, and sends the weights and their sums to the other blocks;
//   4. multiplies all key blocks, in ascending order, with its own 64 columns of the values.
// The operations on a row, and their order, are those of column_form.cuh, hence the same bits.
//
// Roles: one warpgroup computes; one warp (four warps if keys are FP8) loads each round as soon as
// the previous round has been read. Barriers, full only: queries, keys, the values of each key
// block (1 arrival each), the maxima and the weights of each key block (1 arrival, and the bytes
// that their owners send). A thread block sends its maxima only after it has read everything sent
// to it in the previous round. So a thread block that has all maxima may send weights. Thread
// blocks without a key block in the last round send maxima too (-inf). Named barriers: keys, and
// values, of a round have been read.
//
// Cost of a round, 24 rows: 72 KB of keys and 64 KB of values (from L2: another thread block reads
// them as keys); 36 wgmma steps for scores, eight times four for values. Measured with 400 keys: 38
// clocks per step of scores and 470 per key block of values (docs/lab/latent-attention.md).
#include <type_traits>

#include "kernels/common/device.h"
#include "kernels/common/early_launch.cuh"
#include "kernels/latent_attention/cluster_f8_load.cuh"
#include "kernels/latent_attention/cluster_walk.cuh"
#include "kernels/latent_attention/column_store.cuh"

namespace slimexx::kernels::latent_attention {
namespace {

// Run by the loading warp.
template <int kRows>
__device__ __forceinline__ void load_item(const ClusterLoader<kRows>& loader) {
  const int first_block = loader.item.first_block, last_block = loader.item.last_block;
  const int own = first_block + loader.rank;
  const auto keys = loader.find_key_piece(own), values = loader.find_value_piece(first_block);
  loader.expect_keys(own);
  loader.expect_values(first_block);
  loader.load_keys(keys, keys.is_written);
  loader.load_values(values, values.is_written);
  await_previous_grids();  // these wrote queries, the newest keys and perhaps the context
  loader.load_keys(keys, !keys.is_written);  // first: all blocks wait for the newest keys' scores
  if (own < last_block)
    load_queries(loader.maps.query, loader.maps.query_rotary, loader.shared, loader.item);
  loader.load_values(values, !values.is_written);
  for (int first = first_block + kRound; first < last_block; first += kRound) {
    const auto next_keys = loader.find_key_piece(first + loader.rank);
    const auto next_values = loader.find_value_piece(first);
    sync_named(kKeysAreRead, kClusterComputing + kClusterLoading);
    loader.expect_keys(first + loader.rank);
    loader.load_keys(next_keys, true);
    sync_named(kValuesAreRead, kClusterComputing + kClusterLoading);
    loader.expect_values(first);
    loader.load_values(next_values, true);
  }
}

// Run by the computing warpgroup. kThreads: of the thread block.
template <int kRows, int kThreads>
__device__ __forceinline__ void attend_item(const Problem& problem, ClusterShared<kRows> shared,
                                            const Item& item, int rank) {
  using Layout = ClusterShared<kRows>;
  const attention::Problem& p = problem.attention;
  ClusterWalk<kRows> walk{shared, rank, p.c};
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
  int64_t begins[kRows / 8];
  find_output_rows<kRows>(problem, item, begins);
  const int first_masked = (item.position(0, p.group) + 1) / kBlock;
  const auto missing = [&](int block) { return max((block + 1) * kBlock - item.keys, 0); };
  await_previous_grids();  // earlier kernels may still read what this kernel overwrites
  int round = 0;
  for (int first = item.first_block; first < item.last_block; first += kRound, ++round) {
    const int count = min(kRound, item.last_block - first), own = first + rank;
    const bool goes_on = first + kRound < item.last_block;
    const uint32_t parity = round % 2;
    if (threadIdx.x < count && threadIdx.x != rank) {
      arrive_expect_bytes(shared.weights_full(threadIdx.x),
                          Layout::kWeightBytes + Layout::kSumBytes);
    }
    if (threadIdx.x == 0) arrive_expect_bytes(shared.maxima_full(), kRound * Layout::kRowBytes);
    float highest[walk.kOwnRows];
#pragma unroll
    for (float& of_row : highest) of_row = attention::minus_infinity();
    if (rank < count) {
      walk.form_scores(missing(own), parity);
      if (goes_on) arrive_named(kKeysAreRead, kThreads);
      if (own >= first_masked) walk.mask(own);
      find_highest<kRows>(walk.scores, shared.scratch(), kOwnBarrier, highest);
    }
    // Allowed only now: the next kernel is a product, whose loads of weights would delay the keys.
    if (!goes_on) allow_next_grid();
    if (threadIdx.x < 32) walk.tell_maxima(highest);
    wait(shared.maxima_full(), parity);
    walk.find_decays(round, count);
    if (rank < count) walk.send_weights();
    walk.await_block(0, missing(first), parity);
    for (int i = 0; i < count; ++i) {
      walk.queue_block(i);
      if (i + 1 < count) walk.await_block(i + 1, missing(first + i + 1), parity);
      walk.finish_block();
    }
    if (!goes_on) break;
    arrive_named(kValuesAreRead, kThreads);
    // All warps must have read this round before the next maxima are sent.
    sync_named(kOwnBarrier, kClusterComputing);
  }
  arrive_at_cluster_relaxed();  // this block has received everything sent to it
  walk.join_sums();
  float maximum[walk.kOwnRows], sum[walk.kOwnRows];
#pragma unroll
  for (int n = 0; n < walk.kOwnRows; ++n) {
    maximum[n] = walk.of_row(shared.running(round + 1), n);
    sum[n] = walk.of_row(shared.offsets(), n);
  }
  store_columns<kRows>(problem, item, walk.output, walk.position, maximum, sum, begins,
                       rank * kBoxColumns, rank == 0);
}

// Keys: KeyBoxes or F8Keys.
template <class Keys>
constexpr int kClusterThreads = kClusterComputing +
                                (std::is_same_v<Keys, F8Keys> ? kClusterF8Loading
                                                              : kClusterLoading);

template <int kRows, class Keys>
__global__ void __launch_bounds__(kClusterThreads<Keys>, 1)
    attend_cluster_latent(const __grid_constant__ Problem problem,
                          const __grid_constant__ CUtensorMap query_map,
                          const __grid_constant__ CUtensorMap query_rotary_map,
                          const __grid_constant__ Keys keys) {
  constexpr bool kF8 = std::is_same_v<Keys, F8Keys>;
  extern __shared__ __align__(1024) uint8_t memory[];
  const ClusterShared<kRows> shared{shared_address(memory)};
  if (threadIdx.x == 0) {
    if (shared.base % 1024 != 0) __trap();  // the swizzle is a function of the address
    prefetch_tensor_map(&query_map);
    prefetch_tensor_map(&query_rotary_map);
    if constexpr (kF8) {
      shared.init(kF8Warps * kArrivalsPerWarp, kArrivalsPerWarp);
    } else {
      prefetch_tensor_map(&keys.map);
      prefetch_tensor_map(&keys.rotary_map);
      shared.init();
    }
  }
  sync_cluster();  // the barriers are initialised before other blocks arrive at them
  if (!problem.attention.context_is_written) await_previous_grids();
  WorkCursor cursor;
  Item item;
  const bool has_item = find_item<false, kRows>(problem.attention, cursor,
                                                static_cast<int>(blockIdx.x) / kRound, item) &&
                        item.first_block < item.last_block;
  // The shuffles tell the compiler that all lanes have the same values, so that loop counters and
  // addresses can be in uniform registers.
  item.first_block = __shfl_sync(0xffffffffu, item.first_block, 0);
  item.last_block = __shfl_sync(0xffffffffu, item.last_block, 0);
  const auto rank = static_cast<int>(cluster_rank());
  if (!has_item) {
    await_previous_grids();  // a kernel that waits for this kernel must wait for earlier kernels
                             // too
    arrive_at_cluster_relaxed();
  } else if (threadIdx.x < kClusterComputing) {
    attend_item<kRows, kClusterThreads<Keys>>(problem, shared, item, rank);
  } else if constexpr (kF8) {
    ClusterF8Loader<kRows> loader{problem.attention, keys, shared, item, rank};
    load_item(loader, query_map, query_rotary_map);
    arrive_at_cluster_relaxed();
  } else {
    const int written_pieces = attention::count_written_blocks(problem.attention, item.context,
                                                               problem.attention.box_rows);
    load_item<kRows>({problem.attention,
                      {query_map, query_rotary_map, keys.map, keys.rotary_map},
                      shared,
                      item,
                      rank,
                      written_pieces});
    arrive_at_cluster_relaxed();
  }
  await_cluster();  // all blocks have received what this block sent from its shared memory
}

template <int kRows>
cudaError_t launch(const Launch& launch, cudaStream_t stream) {
  const auto blocks =
      static_cast<unsigned>(kRound * launch.max_segments * launch.problem.attention.sequences);
  return with_keys(launch, [&]<class Keys>(const Keys& keys) {
    return launch_early(attend_cluster_latent<kRows, Keys>,
                        {dim3(blocks), kClusterThreads<Keys>, ClusterShared<kRows>::kBytes, kRound},
                        stream, launch.problem, launch.query_map, launch.query_rotary_map, keys);
  });
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
