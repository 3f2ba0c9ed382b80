#include "slimexx/ops/deferred.h"

#include "slimexx/ops/heads.h"
#include "slimexx/ops/matmul.h"

namespace slimexx::ops {
namespace {

Tensor copy_operand(const Context& ctx, tensor::Arena& arena, Tensor x) {
  const int64_t width = x.dim(1);
  const Tensor copy = arena.allocate(x.dtype(), {x.dim(0), width});
  if (x.is_contiguous()) {
    tensor::copy_bytes(ctx.stream, copy, x);
  } else {
    copy_head_columns(ctx, copy.split_last({1, width}), 0, x.split_last({1, width}), 0, width);
  }
  return copy;
}

}  // namespace

void DeferredProducts::add(const Context& ctx, Tensor dw, Tensor dbias, Tensor dy, Tensor x,
                           bool accumulate) {
  products_.push_back({.dw = dw,
                       .dbias = dbias,
                       .dy = copy_operand(ctx, *arena_, dy),
                       .x = copy_operand(ctx, *arena_, x),
                       .accumulate = accumulate});
}

void DeferredProducts::run(const Context& ctx) {
  Context now = ctx;
  now.deferred = nullptr;
  for (const Product& p : products_)
    matmul_backward_weight(now, p.dw, p.dbias, p.dy, p.x, p.accumulate);
  products_.clear();
  arena_->release_to(0);
}

}  // namespace slimexx::ops
