// What the host prepares for each run of sequences.
#pragma once
#include "kernels/attention/problem.cuh"
#include "kernels/common/tensor_map.cuh"

namespace slimexx::kernels::attention {

struct Launch {
  Problem problem;
  CUtensorMap key_map, value_map;  // of boxes; few rows: of pieces (few_rows_load.cuh)
  int64_t tokens;
  int max_segments;
};

cudaError_t count_processors(int* processors);
cudaError_t launch_whole_rows(const Launch& parameters, int head_dim, cudaStream_t stream);
// Sequences of any number of rows, merged.
cudaError_t launch_split_keys(const Launch& parameters, int head_dim, cudaStream_t stream);
// Of at most kFewAttentionRows, merged.
cudaError_t launch_few_rows(const Launch& parameters, int head_dim, cudaStream_t stream);
// Rows whose keys lie in several segments become outputs.
cudaError_t launch_merge(const Launch& parameters, int head_dim, cudaStream_t stream);

// What a thread block of few rows takes at a time, for one kv head.
enum class FewRowsRuns {
  kSegments,   // one segment, and merge_segments follows where there may be several
  kSequences,  // all segments of a sequence
  kClusters,   // one segment; the sequence's others are in the same cluster
};

}  // namespace slimexx::kernels::attention
