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

// Of kSplitKeys: sequences with at most kFewRows query rows a kv head.
inline constexpr int kFewRows = 16;
inline bool has_few_rows(const Launch& launch) {
  return launch.problem.partial_rows > 0 && launch.problem.partial_rows <= kFewRows;
}
// What a thread block takes at a time, for one kv head.
enum class FewRowsRuns {
  kSegments,   // one segment, and merge_segments follows where there may be several
  kSequences,  // all segments of a sequence
  kClusters,   // one segment; the sequence's others are in the same cluster
};
FewRowsRuns choose_runs(const Launch& launch, int processors);
cudaError_t launch_few_rows(const Launch& parameters, int head_dim, FewRowsRuns runs,
                            int processors, cudaStream_t stream);

}  // namespace slimexx::kernels::attention
