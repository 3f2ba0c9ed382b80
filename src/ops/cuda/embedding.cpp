#include "slimexx/kernels/rows.h"

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/launch.h"

namespace slimexx::ops::cuda {

// The kernel copies rows of two bf16 without changing bits; here such a row of four bytes is an i32
// or an f32.
void gather_elements(const Context& ctx, Tensor y, Tensor x, Tensor indices) {
  SLX_CUDA(
      kernels::gather_rows(y.raw(), 2, x.raw(), 2, indices.i32(), indices.dim(0), 2, handle(ctx)));
}

void embedding_shard_forward(const Context& ctx, Tensor y, Tensor table, Tensor tokens,
                             int64_t first) {
  SLX_CUDA(kernels::embedding_shard(y.raw(), y.stride(0), table.raw(), table.stride(0),
                                    {first, table.dim(0)}, tokens.i32(), tokens.dim(0),
                                    table.dim(1), handle(ctx)));
}

void embedding_backward(const Context& ctx, Tensor dtable, Tensor dy, Tensor tokens) {
  const ScratchScope scratch(ctx,
                             kernels::embedding_backward_workspace(tokens.dim(0), dtable.dim(0)));
  if (ctx.planning()) return;
  SLX_CHECK(dy.is_contiguous());
  SLX_CUDA(kernels::embedding_backward(dtable.f32(), dy.raw(), tokens.i32(), tokens.dim(0),
                                       dtable.dim(1), dtable.dim(0), scratch.data(), handle(ctx)));
}

}  // namespace slimexx::ops::cuda
