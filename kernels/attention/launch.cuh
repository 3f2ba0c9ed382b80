// The host's side of a launch: one for each AttentionRun that is not empty.
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

cudaError_t launch_whole_rows(const Launch& parameters, int head_dim, cudaStream_t stream);
// Sequences of any number of rows, merged.
cudaError_t launch_split_keys(const Launch& parameters, int head_dim, cudaStream_t stream);
// Of at most kFewAttentionRows, merged.
cudaError_t launch_few_rows(const Launch& parameters, int head_dim, cudaStream_t stream);
// Rows whose keys lie in several segments become outputs.
cudaError_t launch_merge(const Launch& parameters, int head_dim, cudaStream_t stream);

}  // namespace slimexx::kernels::attention
