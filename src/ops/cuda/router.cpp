#include "slimexx/kernels/experts.h"

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/router_shape.h"

namespace slimexx::ops::cuda {

void route_forward(const Context& ctx, Tensor ids, Tensor weights, Tensor logits, Tensor bias,
                   const RouterRule& rule) {
  const char* fault = kernels::route_forward(ids.i32(), weights.f32(), logits.f32(),
                                             bias.defined() ? bias.f32() : nullptr, shape_of(rule),
                                             logits.dim(0), handle(ctx));
  check_launch("route_forward", fault, logits, ids);
}

void route_backward(const Context& ctx, Tensor dlogits, Tensor dweights, Tensor ids, Tensor logits,
                    const RouterRule& rule) {
  const char* fault =
      kernels::route_backward(dlogits.f32(), dweights.f32(), ids.i32(), logits.f32(),
                              shape_of(rule), logits.dim(0), handle(ctx));
  check_launch("route_backward", fault, logits, ids);
}

}  // namespace slimexx::ops::cuda
