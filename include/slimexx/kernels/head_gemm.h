// Products of each head's part of a row with that head's weights, on Hopper, with the order of sums
// of launch_gemm. Nothing is allocated, nothing synchronises. Each function queues its kernel on
// `stream` and returns null, or the fault as a static text. The kernels read w, and nothing else,
// before earlier kernels of the stream have ended, as launch_gemm with overlap_previous does.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "slimexx/kernels/rows.h"

namespace slimexx::kernels {

// bf16, 16-byte aligned; strides count elements, in multiples of 8. Heads may be wider than the
// product, which takes the first elements of each.
struct HeadGemmArgs {
  const void* x = nullptr;  // [tokens, heads, >= k]; of the input's gradient [.., >= n]
  const void* w = nullptr;  // [heads, n, k]
  void* y = nullptr;        // [tokens, heads, >= n]; of the input's gradient [.., >= k]
  int64_t x_stride = 0, x_head_stride = 0;  // from token to token, from head to head
  int64_t y_stride = 0, y_head_stride = 0;
  int64_t tokens = 0, heads = 0;
  int64_t n = 0, k = 0;  // multiples of 8
};
// y[token, head] = x[token, head] w[head]^T
[[nodiscard]] const char* launch_head_gemm(const HeadGemmArgs& args, cudaStream_t stream);
// y[token, head] = x[token, head] w[head]
[[nodiscard]] const char* launch_head_input_grad(const HeadGemmArgs& args, cudaStream_t stream);

// Columns of the same tokens and heads that are rotated concurrently with the product, as
// rotate_head_columns does.
struct HeadRotation {
  HeadRows y, x;
  int64_t width = 0;
  RotaryTables tables;
};
// Whether one kernel does both: with few tokens, another launch would take longer than its work.
bool rotates_beside_input_grad(const HeadGemmArgs& args);
// launch_head_input_grad and the rotation. Neither may read what the other writes.
[[nodiscard]] const char* launch_head_input_grad(const HeadGemmArgs& args,
                                                 const HeadRotation& rotation, cudaStream_t stream);

}  // namespace slimexx::kernels
