// Sums over rows in two kernels. First, each of `parts` blocks writes one f32 partial sum per
// column, over a fixed range of rows. Then add_partial_sums adds the partial sums in an order that
// `parts` fixes.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace slimexx::kernels::rows {

// Part p of `parts` owns rows [part_begin(p), part_begin(p + 1)).
__host__ __device__ inline int64_t part_begin(int64_t part, int64_t parts, int64_t rows) {
  return rows * part / parts;
}

// out[c] += sum over p of partial[p * columns + c]; the order is fixed by `parts`. Columns from
// `split` on are added to out_after[c - split]. If a pointer is null, its columns are dropped.
struct PartialSums {
  float* out = nullptr;
  const float* partial = nullptr;
  int64_t parts = 0, columns = 0;
  float* out_after = nullptr;
  int64_t split = INT64_MAX;
};
cudaError_t add_partial_sums(const PartialSums& sums, cudaStream_t stream);

}  // namespace slimexx::kernels::rows
