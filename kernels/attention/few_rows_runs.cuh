// What the thread blocks of few_rows.cu divide among themselves.
#pragma once
#include <cstdint>

#include "kernels/attention/key_stream.cuh"
#include "kernels/attention/launch.cuh"
#include "kernels/attention/problem.cuh"
#include "kernels/common/cluster.cuh"

namespace slimexx::kernels::attention {

// Segments [first, last) of a sequence for one kv head.
struct Run {
  Sequence sequence;
  int index, head, first_segment, last_segment;
};

__device__ __forceinline__ int count_segments(const Sequence& sequence) {
  return divide_up(sequence.keys(), kAttentionSegmentKeys);
}

// Of kSequences: gridDim.x / kv_heads places take a sequence each in a round, up to 32 places the
// longest first in even rounds and the shortest first in odd ones; so they end at about the same
// time, and neighbours are at work at the same time. Past the last sequence the run is empty.
__device__ __forceinline__ bool deal_sequence(const Problem& problem, int index, Run& run) {
  const int places = gridDim.x / problem.kv_heads, place = blockIdx.x / problem.kv_heads;
  const int round = index / gridDim.x;
  if (round * places >= problem.sequences) return false;
  const int first = round * places + place / 32 * 32, width = min(places, 32);
  const int lane = threadIdx.x % 32;
  int keys = -1;
  if (lane < width && first + lane < problem.sequences) {
    const Sequence sequence = read_sequence(problem, first + lane);
    keys = sequence.queries > 0 ? sequence.keys() : 0;
  }
  int rank = 0;
  for (int other = 0; other < width; ++other) {
    const int others = __shfl_sync(0xffffffffu, keys, other);
    rank += others > keys || (others == keys && other < lane);
  }
  const int wanted = round % 2 == 0 ? place % 32 : width - 1 - place % 32;
  const int owner = __ffs(__ballot_sync(0xffffffffu, lane < width && rank == wanted)) - 1;
  run = {{0, 0, 0}, first + owner, static_cast<int>(blockIdx.x) % problem.kv_heads, 0, 0};
  if (__shfl_sync(0xffffffffu, keys, owner) <= 0) return true;
  run.sequence = read_sequence(problem, run.index);
  run.last_segment = count_segments(run.sequence);
  return true;
}

// The run of a thread block; of kClusters, `index` counts clusters and the run is the block's
// share, which may be empty.
template <FewRowsRuns kRuns>
__device__ __forceinline__ bool find_run(const Problem& problem, WorkCursor& cursor, int index,
                                         Run& run) {
  if constexpr (kRuns == FewRowsRuns::kSequences) return deal_sequence(problem, index, run);
  int within = 0;
  run.index = cursor.find(problem, index, within, [&](const Sequence& sequence) {
    if (sequence.queries == 0) return 0;
    return (kRuns == FewRowsRuns::kSegments ? count_segments(sequence) : 1) * problem.kv_heads;
  });
  if (run.index < 0) return false;
  run.sequence = read_sequence(problem, run.index);
  run.head = within % problem.kv_heads;
  run.first_segment = kRuns == FewRowsRuns::kClusters ? static_cast<int>(cluster_rank())
                                                      : within / problem.kv_heads;
  run.last_segment = min(run.first_segment + 1, count_segments(run.sequence));
  return true;
}

__device__ __forceinline__ KeyRange keys_of(const Run& run, int first_segment, int last_segment) {
  const int keys = run.sequence.keys();
  return {run.index,
          run.head,
          run.sequence.first_token,
          keys,
          first_segment * kSegmentBlocks,
          min(last_segment * kSegmentBlocks, divide_up(keys, kBlock))};
}

}  // namespace slimexx::kernels::attention
