#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/isa/isa.h"
#include "ops/cpu/product.h"
#include "slimexx/base/thread_pool.h"

namespace slimexx::ops::cpu {

namespace {

Rows rows_of(const Tensor& x) { return {x.f32(), x.stride(0)}; }

}  // namespace

void matmul_forward(Tensor y, Tensor x, Tensor w, Tensor bias) {
  Product product = forward_product(x.dim(0), w.dim(0), x.dim(1), rows_of(y), rows_of(x), w.f32());
  product.bias = bias.defined() ? bias.f32() : nullptr;
  multiply(product);
}

void matmul_backward_input(Tensor dx, Tensor dy, Tensor w, bool accumulate) {
  Product product =
      input_gradient(dy.dim(0), dy.dim(1), w.dim(1), rows_of(dx), rows_of(dy), w.f32());
  product.accumulate = accumulate;
  multiply(product);
}

void matmul_backward_weight(Tensor dw, Tensor dbias, Tensor dy, Tensor x) {
  if (dw.defined())
    multiply(
        weight_gradient(dy.dim(0), dy.dim(1), x.dim(1), dw.f32(), rows_of(dy), rows_of(x), true));
  if (!dbias.defined()) return;
  const KernelTable& isa = kernels();
  parallel_for(dy.dim(1), 256, [&](int64_t begin, int64_t end) {
    for (int64_t t = 0; t < dy.dim(0); ++t)
      isa.accumulate(dbias.f32() + begin, dy.f32() + t * dy.stride(0) + begin, end - begin);
  });
}

}  // namespace slimexx::ops::cpu
