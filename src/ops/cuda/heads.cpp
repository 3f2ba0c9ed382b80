#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/rotary_tables.h"
#include "slimexx/kernels/head_gemm.h"
#include "slimexx/kernels/rows.h"

namespace slimexx::ops::cuda {
namespace {

// The elements of each head of x[T,n,*] from `begin` on.
kernels::HeadRows head_rows(const Tensor& x, int64_t begin) {
  return {.data = static_cast<char*>(x.raw()) + begin * tensor::dtype_bytes(x.dtype()),
          .token_stride = x.stride(0),
          .head_stride = x.stride(1)};
}

// w[heads, n, k]; y is the result, in forward and backward.
kernels::HeadGemmArgs head_product(const Tensor& y, const Tensor& x, const Tensor& w) {
  return {.x = x.raw(),
          .w = w.raw(),
          .y = y.raw(),
          .x_stride = x.stride(0),
          .x_head_stride = x.stride(1),
          .y_stride = y.stride(0),
          .y_head_stride = y.stride(1),
          .tokens = x.dim(0),
          .heads = w.dim(0),
          .n = w.dim(1),
          .k = w.dim(2)};
}

}  // namespace

void rotate_head_columns(const Context& ctx, Tensor y, int64_t begin, Tensor x, int64_t x_begin,
                         int64_t width, const RotaryTable& table, Tensor positions, bool inverse) {
  SLX_CUDA(kernels::rotate_head_columns(head_rows(y, begin), head_rows(x, x_begin), y.dim(0),
                                        y.dim(1), width, rotary_tables(table, positions), inverse,
                                        handle(ctx)));
}

void head_matmul_forward(const Context& ctx, Tensor y, Tensor x, Tensor w) {
  check_launch("head_matmul_forward", kernels::launch_head_gemm(head_product(y, x, w), handle(ctx)),
               x, w);
}

void head_matmul_backward_input(const Context& ctx, Tensor dx, Tensor dy, Tensor w) {
  check_launch("head_matmul_backward_input",
               kernels::launch_head_input_grad(head_product(dx, dy, w), handle(ctx)), dy, w);
}

void latent_queries_forward(const Context& ctx, Tensor queries, Tensor nope, Tensor w, Tensor rope,
                            const RotaryTable& table, Tensor positions) {
  const kernels::HeadGemmArgs product = head_product(queries, nope, w);
  if (!kernels::rotates_beside_input_grad(product)) {
    cuda::head_matmul_backward_input(ctx, queries, nope, w);
    return cuda::rotate_head_columns(ctx, queries, w.dim(2), rope, 0, rope.dim(2), table, positions,
                                     false);
  }
  const kernels::HeadRotation rotation{.y = head_rows(queries, w.dim(2)),
                                       .x = head_rows(rope, 0),
                                       .width = rope.dim(2),
                                       .tables = rotary_tables(table, positions)};
  check_launch("latent_queries_forward",
               kernels::launch_head_input_grad(product, rotation, handle(ctx)), nope, w);
}

void copy_head_columns(const Context& ctx, Tensor y, int64_t begin, Tensor x, int64_t x_begin,
                       int64_t width) {
  kernels::HeadRows from = head_rows(x, x_begin);
  if (x.dim(1) == 1) from.head_stride = 0;
  SLX_CUDA(kernels::copy_head_columns(head_rows(y, begin), from, y.dim(0), y.dim(1), width,
                                      handle(ctx)));
}

void sum_head_columns(const Context& ctx, Tensor y, Tensor x, int64_t x_begin) {
  SLX_CUDA(kernels::sum_head_columns(y.raw(), y.stride(0), head_rows(x, x_begin), x.dim(0),
                                     x.dim(1), y.dim(1), handle(ctx)));
}

}  // namespace slimexx::ops::cuda
