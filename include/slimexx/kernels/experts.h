// Mixture of experts on Hopper: the router, the order of routed rows, and products of each expert's
// rows with its weights.
//
// R routed rows stand by expert: rows [offsets[e], offsets[e + 1]) are expert e's, and offsets lie
// on the device. A launch knows R, or its bound, and the number of experts alone, so it can be
// recorded. Pointers are device pointers, matrices row-major without gaps. Nothing is allocated,
// nothing synchronises; every sum has one order, so the same call has the same bits every time.
//
// Every function queues its work on `stream` and returns null, or the fault as a static text.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "slimexx/kernels/limits.h"

namespace slimexx::kernels {

struct RouterShape {
  int64_t experts = 0, top_k = 0;
  int64_t groups = 1, kept_groups = 1;  // equal groups, ranked by the sum of their two best
  bool sigmoid = false;                 // else softmax
  bool normalized = true;
  float epsilon = 0, scaling_factor = 1;
};
// ids [tokens, top_k] i32 ascending in a row, weights the same f32, of logits [tokens, experts]
// f32. bias [experts] f32 or null is added to the scores for the choice alone. Of equal scores the
// lower expert wins, of equal groups the lower group.
[[nodiscard]] const char* route_forward(int32_t* ids, float* weights, const float* logits,
                                        const float* bias, const RouterShape& shape, int64_t tokens,
                                        cudaStream_t stream);
// dlogits [tokens, experts] f32 is written; the choice counts as constant.
[[nodiscard]] const char* route_backward(float* dlogits, const float* dweights, const int32_t* ids,
                                         const float* logits, const RouterShape& shape,
                                         int64_t tokens, cudaStream_t stream);

// The order of the choices ids [count] i32, each in [0, experts): by expert, and for each expert as
// they stand. choices [count]: of a routed row; tokens [count]: that choice / top_k; rows [count]:
// the routed row of a choice; offsets [experts + 1]. `workspace`: 16-byte aligned.
size_t sort_by_expert_workspace(int64_t count, int64_t experts);
[[nodiscard]] const char* sort_by_expert(int32_t* offsets, int32_t* choices, int32_t* tokens,
                                         int32_t* rows, const int32_t* ids, int64_t count,
                                         int64_t top_k, int64_t experts, void* workspace,
                                         cudaStream_t stream);

// copies [count] i32 = table[ids [count]], of `experts` elements in host memory, at most
// kMostExperts, in [0, 65535]; it is read in the call.
[[nodiscard]] const char* choose_copies(int32_t* copies, const int32_t* ids, int64_t count,
                                        const int32_t* table, int64_t experts, cudaStream_t stream);

// Both in one kernel, with the same results, where tokens are few.
struct RoutedOrder {
  int32_t *offsets = nullptr, *choices = nullptr, *tokens = nullptr, *rows = nullptr;
};
bool fuses_route_and_sort(const RouterShape& shape, int64_t tokens);
[[nodiscard]] const char* route_and_sort(int32_t* ids, float* weights, const RoutedOrder& order,
                                         const float* logits, const float* bias,
                                         const RouterShape& shape, int64_t tokens,
                                         cudaStream_t stream);

// y [tokens, width] bf16 = sum over a token's choices, ascending, of weights [tokens, top_k] f32
// (null: ones) times the row of in [tokens * top_k, width] bf16 that rows [tokens, top_k] names,
// then + shared [tokens, width] bf16 (may be null), in f32, rounded once. Width: a multiple of 8.
[[nodiscard]] const char* combine_rows(void* y, const void* in, const float* weights,
                                       const void* shared, const int32_t* rows, int64_t tokens,
                                       int64_t top_k, int64_t width, cudaStream_t stream);
// x_sum = x [tokens, width] bf16 + that sum, and where y and w [width] are given y =
// rms_norm(x_sum) with weights w: the bits of combine_rows, then add_rms_norm_forward. x_sum may be
// x. Rows are 16-byte aligned.
[[nodiscard]] const char* combine_add_rms_norm(void* y, void* x_sum, const void* x, const void* in,
                                               const float* weights, const void* shared,
                                               const int32_t* rows, const void* w, int64_t tokens,
                                               int64_t top_k, int64_t width, float eps,
                                               cudaStream_t stream);
// Of each of *count rows, on the device and at most `rows`: g = swiglu(gate_up) of gate_up [rows, 2
// width] bf16, the bits of swiglu_forward; dweights f32 = <dh, g> of dh [rows, width] bf16, by
// choice; h [rows, width] bf16 = the choice's weight times g; then gate_up becomes its gradient, of
// the weight times dh, rounded. choices: null where choice i is row i. h may be dh; its next
// kReadBehindExperts rows, if there are, become zero. Width: a multiple of 8; rows are 16-byte
// aligned.
[[nodiscard]] const char* expert_swiglu_backward(float* dweights, void* h, void* gate_up,
                                                 const void* dh, const float* weights,
                                                 const int32_t* choices, const int32_t* count,
                                                 int64_t rows, int64_t width, cudaStream_t stream);

struct GroupedRows {
  const int32_t* offsets = nullptr;  // [experts + 1]
  int64_t experts = 0;
  int64_t rows = 0;  // R: offsets[experts], or the most that this can be
  // How many are likely, which the choice of tiles goes by and no bit does. 0: all of R.
  int64_t likely = 0;
};
struct GroupedGemmArgs {
  const void* x = nullptr;  // [R, k] bf16
  const void* w = nullptr;  // [experts, n, k] bf16
  void* y = nullptr;        // [R, n] bf16
  GroupedRows rows = {};
  int64_t n = 0, k = 0;  // multiples of 8
  // Of the forward products: x is the one row of all of R, and an expert has one of them at most.
  bool one_x_row = false;
  // The same: another product with these offsets was queued on the stream since they were written,
  // so that weights may be loaded while the kernels before this one still run.
  bool follows_product = false;
  // The same, or null: [n, k], the weights of one more expert, whose rows are those from
  // offsets[experts] on. With one_x_row they are read before the kernels before this one have
  // ended.
  const void* shared_w = nullptr;
};
// y[r] = x[r] w[e]^T for the rows r of every expert e: the bits of launch_gemm.
[[nodiscard]] const char* launch_grouped_gemm(const GroupedGemmArgs& args, cudaStream_t stream);
// y is h [R, n / 2] = silu(gate) * up of that product: the bits of swiglu_forward of it. n must be
// a multiple of 16, k of 64.
bool fuses_grouped_swiglu(int64_t n, int64_t k);
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
