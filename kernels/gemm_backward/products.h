// A product in a gradient, and the two functions that compute it.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "slimexx/kernels/gemm_backward.h"

namespace slimexx::kernels {

// A bf16 matrix in memory: `rows` runs of `columns` contiguous elements, `stride` elements apart.
struct GradOperand {
  const void* data;
  int64_t rows;
  int64_t columns;
  int64_t stride;
};

// d[rows, columns] (+)= a' b. a is [depth, rows] with transpose_a, otherwise [rows, depth]; b is
// [depth, columns].
struct GradProduct {
  GradOperand a;
  GradOperand b;
  bool transpose_a;
  void* d;
  int64_t d_stride;
  bool d_is_f32;  // otherwise bf16
  bool accumulate;

  int64_t rows() const { return transpose_a ? a.columns : a.rows; }
  int64_t depth() const { return b.rows; }
  int64_t columns() const { return b.columns; }
};

struct GradOutcome {
  const char* fault;  // null: queued
  bool unserved;      // cuBLASLt has no algorithm; nothing was queued
};

GradOutcome multiply_by_cublas(const GradProduct& product, const GemmWorkspace& workspace,
                               cudaStream_t stream);
const char* multiply_plainly(const GradProduct& product, cudaStream_t stream);

}  // namespace slimexx::kernels
