// What the host prepares once for both schedules.
#pragma once
#include "kernels/attention/problem.cuh"
#include "kernels/common/tensor_map.cuh"

namespace slimexx::kernels::attention {

struct Launch {
  Problem problem;
  CUtensorMap key_map, value_map;
  int64_t tokens;
  int max_segments;
};

cudaError_t count_processors(int* processors);
cudaError_t launch_whole_rows(const Launch& parameters, int head_dim, cudaStream_t stream);
cudaError_t launch_split_keys(const Launch& parameters, int head_dim, cudaStream_t stream);

}  // namespace slimexx::kernels::attention
