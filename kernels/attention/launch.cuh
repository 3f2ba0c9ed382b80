// Host side: one launch for each AttentionRun that is not empty.
#pragma once
#include "kernels/attention/problem.cuh"
#include "kernels/common/tensor_map.cuh"

namespace slimexx::kernels::attention {

struct Launch {
  Problem problem;
  CUtensorMap key_map, value_map;  // few rows: pieces (few_rows_load.cuh); otherwise boxes
  int64_t tokens;
  int max_segments;
};

cudaError_t launch_whole_rows(const Launch& parameters, int head_dim, cudaStream_t stream);
// Any number of query rows per sequence; also launches the merge if needed.
cudaError_t launch_split_keys(const Launch& parameters, int head_dim, cudaStream_t stream);
// At most kFewAttentionRows rows per sequence and kv head; also launches the merge if needed.
cudaError_t launch_few_rows(const Launch& parameters, int head_dim, cudaStream_t stream);
// Combines the partial results of rows whose keys span several segments.
cudaError_t launch_merge(const Launch& parameters, int head_dim, cudaStream_t stream);

}  // namespace slimexx::kernels::attention
