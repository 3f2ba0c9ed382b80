// What the host prepares once for both schedules.
#pragma once
#include "kernels/attention/problem.cuh"
#include "kernels/common/tensor_map.cuh"

namespace slimexx::kernels::attention {

struct Launch {
  Problem problem;
  CUtensorMap key_map, value_map;  // of boxes, or of pieces (few_rows_load.cuh)
  int64_t tokens;
  int max_segments;
};

cudaError_t count_processors(int* processors);
cudaError_t launch_whole_rows(const Launch& parameters, int head_dim, cudaStream_t stream);
cudaError_t launch_split_keys(const Launch& parameters, int head_dim, cudaStream_t stream);

// Of kSplitKeys: sequences with at most kFewRows query rows a kv head. `whole`: a thread block
// walks all segments of a sequence, and there is nothing left to merge.
inline constexpr int kFewRows = 16;
inline bool has_few_rows(const Launch& launch) {
  return launch.problem.partial_rows > 0 && launch.problem.partial_rows <= kFewRows;
}
cudaError_t launch_few_rows(const Launch& parameters, int head_dim, bool whole, int processors,
                            cudaStream_t stream);

// Starts a kernel before the previous one of the stream has ended: it has to await_previous_grids()
// before it reads or writes what others know.
template <class... Parameters>
cudaError_t launch_early(void (*kernel)(Parameters...), unsigned blocks, int threads,
                         int shared_bytes, cudaStream_t stream, const Parameters&... arguments) {
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace slimexx::kernels::attention
