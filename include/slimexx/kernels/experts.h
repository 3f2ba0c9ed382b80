// Mixture of experts on Hopper: the router, sorting routed rows by expert, and grouped products of
// each expert's rows with its weights.
//
// The R routed rows are sorted by expert: expert e has rows [offsets[e], offsets[e + 1]). Offsets
// stay on the device. The host knows only R, or an upper bound on it, and the number of experts, so
// launches can be captured in a CUDA graph. Pointers are device pointers, matrices row-major
// without gaps. Nothing is allocated, nothing synchronises. Every sum has a fixed order, so the
// same call gives the same bits every time.
//
// Every function queues its work on `stream` and returns null, or the error as a static text.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "slimexx/kernels/limits.h"

namespace slimexx::kernels {

struct RouterShape {
  int64_t experts = 0, top_k = 0;
  int64_t groups = 1,
          kept_groups = 1;  // groups of equal size, ranked by the sum of their two best scores
  bool sigmoid = false;     // false: softmax
  bool normalized = true;
  float epsilon = 0, scaling_factor = 1;
};
// From logits [tokens, experts] f32: ids [tokens, top_k] i32, ascending in a row, and their weights
// [tokens, top_k] f32. bias [experts] f32, or null, is added to the scores only to choose experts,
// not in the weights. Ties go to the lower expert and to the lower group.
[[nodiscard]] const char* route_forward(int32_t* ids, float* weights, const float* logits,
                                        const float* bias, const RouterShape& shape, int64_t tokens,
                                        cudaStream_t stream);
// Overwrites dlogits [tokens, experts] f32. The choice of experts counts as constant.
[[nodiscard]] const char* route_backward(float* dlogits, const float* dweights, const int32_t* ids,
                                         const float* logits, const RouterShape& shape,
                                         int64_t tokens, cudaStream_t stream);

// Stable sort of the choices ids [count] i32, each in [0, experts), by expert. choices [count]: the
// choice of each routed row; tokens [count]: the token of each routed row, choice / top_k; rows
// [count]: the routed row of each choice; offsets [experts + 1]. `workspace`: 16-byte aligned.
size_t sort_by_expert_workspace(int64_t count, int64_t experts);
[[nodiscard]] const char* sort_by_expert(int32_t* offsets, int32_t* choices, int32_t* tokens,
                                         int32_t* rows, const int32_t* ids, int64_t count,
                                         int64_t top_k, int64_t experts, void* workspace,
                                         cudaStream_t stream);

// copies[i] = table[ids[i]], [count] i32. The table has `experts` elements, at most kMostExperts,
// each in [0, 65535]. It is in host memory and is read during the call.
[[nodiscard]] const char* choose_copies(int32_t* copies, const int32_t* ids, int64_t count,
                                        const int32_t* table, int64_t experts, cudaStream_t stream);

// route_forward and sort_by_expert in one kernel, with the same results, for few tokens.
struct RoutedOrder {
  int32_t *offsets = nullptr, *choices = nullptr, *tokens = nullptr, *rows = nullptr;
};
bool fuses_route_and_sort(const RouterShape& shape, int64_t tokens);
[[nodiscard]] const char* route_and_sort(int32_t* ids, float* weights, const RoutedOrder& order,
                                         const float* logits, const float* bias,
                                         const RouterShape& shape, int64_t tokens,
                                         cudaStream_t stream);

// y[t] = sum over i, ascending, of weights[t, i] * in[rows[t, i]], then + shared[t], in f32,
// rounded once. y, shared (may be null) [tokens, width] bf16; weights [tokens, top_k] f32 (null:
// ones); rows [tokens, top_k]; in [tokens * top_k, width] bf16. Width: a multiple of 8.
[[nodiscard]] const char* combine_rows(void* y, const void* in, const float* weights,
                                       const void* shared, const int32_t* rows, int64_t tokens,
                                       int64_t top_k, int64_t width, cudaStream_t stream);
// x_sum = x [tokens, width] bf16 + the result of combine_rows. If y and w [width] are not null, y =
// rms_norm(x_sum) with weights w. The bits are those of combine_rows followed by
// add_rms_norm_forward. x_sum may be x. Rows are 16-byte aligned.
[[nodiscard]] const char* combine_add_rms_norm(void* y, void* x_sum, const void* x, const void* in,
                                               const float* weights, const void* shared,
                                               const int32_t* rows, const void* w, int64_t tokens,
                                               int64_t top_k, int64_t width, float eps,
                                               cudaStream_t stream);
// For every row r < *count (a device value, at most `rows`), with c = choices[r] (r if choices is
// null) and g = swiglu(gate_up[r]), with the bits of swiglu_forward:
//   dweights[c] f32 = <dh[r], g>,  h[r] = weights[c] * g,
//   gate_up[r] = gradient with respect to gate_up[r] from weights[c] * dh[r], rounded
// gate_up [rows, 2 width], dh and h [rows, width] bf16. h may be dh. Rows [*count, min(rows, *count
// + kReadBehindExperts)) of h become zero. Width: a multiple of 8; rows are 16-byte aligned.
[[nodiscard]] const char* expert_swiglu_backward(float* dweights, void* h, void* gate_up,
                                                 const void* dh, const float* weights,
                                                 const int32_t* choices, const int32_t* count,
                                                 int64_t rows, int64_t width, cudaStream_t stream);

struct GroupedRows {
  const int32_t* offsets = nullptr;  // [experts + 1]
  int64_t experts = 0;
  int64_t rows = 0;  // R: offsets[experts], or an upper bound on it
  // The expected number of rows, used to choose tiles. It changes no bits. 0: R.
  int64_t likely = 0;
};
struct GroupedGemmArgs {
  const void* x = nullptr;  // [R, k] bf16
  const void* w = nullptr;  // [experts, n, k] bf16
  void* y = nullptr;        // [R, n] bf16
  GroupedRows rows = {};
  int64_t n = 0, k = 0;  // multiples of 8
  // Forward products only: x has a single row, which is the input of all R rows, and an expert has
  // at most one row.
  bool one_x_row = false;
  // Forward products only: an earlier product on the stream already used these offsets, so they are
  // complete. Weights may be loaded while earlier kernels still run.
  bool follows_product = false;
  // Forward products only, may be null: [n, k], the weights of one more expert, which has the rows
  // from offsets[experts] on. With one_x_row the kernel may read shared_w before earlier kernels
  // have ended.
  const void* shared_w = nullptr;
};
// y[r] = x[r] w[e]^T for the rows r of every expert e, with the bits of launch_gemm.
[[nodiscard]] const char* launch_grouped_gemm(const GroupedGemmArgs& args, cudaStream_t stream);
// Whether launch_grouped_gemm_swiglu supports these sizes: n a multiple of 16, k of 64.
bool fuses_grouped_swiglu(int64_t n, int64_t k);
// y is h [R, n / 2] = silu(gate) * up, where the product of launch_grouped_gemm is [gate, up]. The
// bits are those of swiglu_forward on that product.
[[nodiscard]] const char* launch_grouped_gemm_swiglu(const GroupedGemmArgs& args,
                                                     cudaStream_t stream);
// dx[R, k] bf16 = dy[r, n] w[e, n, k]; `x` is dy, `y` is dx.
[[nodiscard]] const char* launch_grouped_input_grad(const GroupedGemmArgs& args,
                                                    cudaStream_t stream);
// dw[e, n, k] f32 (+)= dy[r, n]^T x[r, k] over the rows of every expert.
struct GroupedWeightGradArgs {
  const void* dy = nullptr;  // [R, n] bf16
  const void* x = nullptr;   // [R, k] bf16
  float* dw = nullptr;       // [experts, n, k]
  GroupedRows rows = {};
  int64_t n = 0, k = 0;  // multiples of 8
  bool accumulate = true;
};
[[nodiscard]] const char* launch_grouped_weight_grad(const GroupedWeightGradArgs& args,
                                                     cudaStream_t stream);

}  // namespace slimexx::kernels
