#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/isa/isa.h"
#include "ops/cpu/product.h"
#include "slimexx/base/thread_pool.h"

namespace slimexx::ops::cpu {

void matmul_forward(Tensor y, Tensor x, Tensor w, Tensor bias) {
  multiply({.m = x.dim(0),
            .n = w.dim(0),
            .k = x.dim(1),
            .a = x.f32(),
            .a_row_stride = x.stride(0),
            .a_column_stride = 1,
            .b = w.f32(),
            .b_n_stride = w.dim(1),
            .b_k_stride = 1,
            .c = y.f32(),
            .ldc = y.stride(0),
            .bias = bias.defined() ? bias.f32() : nullptr});
}

void matmul_backward_input(Tensor dx, Tensor dy, Tensor w, bool accumulate) {
  multiply({.m = dy.dim(0),
            .n = w.dim(1),
            .k = dy.dim(1),
            .a = dy.f32(),
            .a_row_stride = dy.stride(0),
            .a_column_stride = 1,
            .b = w.f32(),
            .b_n_stride = 1,
            .b_k_stride = w.dim(1),
            .c = dx.f32(),
            .ldc = dx.stride(0),
            .accumulate = accumulate});
}

void matmul_backward_weight(Tensor dw, Tensor dbias, Tensor dy, Tensor x) {
  multiply({.m = dy.dim(1),
            .n = x.dim(1),
            .k = dy.dim(0),
            .a = dy.f32(),
            .a_row_stride = 1,
            .a_column_stride = dy.stride(0),
            .b = x.f32(),
            .b_n_stride = 1,
            .b_k_stride = x.stride(0),
            .c = dw.f32(),
            .ldc = dw.dim(1),
            .accumulate = true});
  if (!dbias.defined()) return;
  const KernelTable& isa = kernels();
  parallel_for(dy.dim(1), 256, [&](int64_t begin, int64_t end) {
    for (int64_t t = 0; t < dy.dim(0); ++t)
      isa.accumulate(dbias.f32() + begin, dy.f32() + t * dy.stride(0) + begin, end - begin);
  });
}

}  // namespace slimexx::ops::cpu
