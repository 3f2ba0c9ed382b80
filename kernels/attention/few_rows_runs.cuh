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

// The run of a thread block; of kClusters, `index` counts clusters and the run is the block's
// share, which may be empty.
template <FewRowsRuns kRuns>
__device__ __forceinline__ bool find_run(const Problem& problem, WorkCursor& cursor, int index,
                                         Run& run) {
  int within = 0;
  run.index = cursor.find(problem, index, within, [&](const Sequence& sequence) {
    if (!is_split(problem, sequence) || sequence.queries == 0) return 0;
    return (kRuns == FewRowsRuns::kSegments ? count_segments(sequence) : 1) * problem.kv_heads;
  });
  if (run.index < 0) return false;
  run.sequence = read_sequence(problem, run.index);
  run.head = within % problem.kv_heads;
  run.first_segment = within / problem.kv_heads;
  const int segments = count_segments(run.sequence);
  if (kRuns == FewRowsRuns::kClusters) run.first_segment = static_cast<int>(cluster_rank());
  run.last_segment =
      kRuns == FewRowsRuns::kSequences ? segments : min(run.first_segment + 1, segments);
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
