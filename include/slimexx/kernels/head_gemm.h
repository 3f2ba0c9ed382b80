// One product per head on Hopper: each head's part of a row times that head's weights. Sums have
// the order of launch_gemm. Nothing is allocated, nothing synchronises. Each function queues its
// kernel on `stream` and returns null, or the fault as a static text. The kernels may read w, but
// nothing else, before earlier kernels of the stream have ended, as with
// GemmArgs::overlap_previous.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "slimexx/kernels/rows.h"

namespace slimexx::kernels {

// bf16, 16-byte aligned. Strides count elements and are multiples of 8. Heads may be wider than the
// product, which uses their first elements.
struct HeadGemmArgs {
  const void* x = nullptr;  // [tokens, heads, >= k]; in launch_head_input_grad [.., >= n]
  const void* w = nullptr;  // [heads, n, k]
  void* y = nullptr;        // [tokens, heads, >= n]; in launch_head_input_grad [.., >= k]
  int64_t x_stride = 0, x_head_stride = 0;  // from token to token, from head to head
  int64_t y_stride = 0, y_head_stride = 0;
  int64_t tokens = 0, heads = 0;
  int64_t n = 0, k = 0;  // multiples of 8
};
// y[token, head] = x[token, head] w[head]^T
[[nodiscard]] const char* launch_head_gemm(const HeadGemmArgs& args, cudaStream_t stream);
// y[token, head] = x[token, head] w[head]
[[nodiscard]] const char* launch_head_input_grad(const HeadGemmArgs& args, cudaStream_t stream);

// Other columns of the same tokens and heads. The kernel of the product also rotates them, as
// rotate_head_columns does.
struct HeadRotation {
  HeadRows y, x;
  int64_t width = 0;
  RotaryTables tables;
};
// Whether one kernel computes the product and the rotation. True for few tokens, where a second
// launch would cost more than the rotation itself.
bool rotates_beside_input_grad(const HeadGemmArgs& args);
// launch_head_input_grad and the rotation. Neither the product nor the rotation may read memory
// that the other writes.
[[nodiscard]] const char* launch_head_input_grad(const HeadGemmArgs& args,
                                                 const HeadRotation& rotation, cudaStream_t stream);

}  // namespace slimexx::kernels
