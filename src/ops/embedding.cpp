#include "slimexx/ops/embedding.h"

#include "ops/checks.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cuda/cuda_ops.h"

namespace slimexx::ops {

void embedding_forward(const Context& ctx, Tensor y, Tensor table, Tensor tokens) {
  check_i32("embedding_forward", "tokens", ctx, tokens, {kAny});
  check_compute("embedding_forward", "table", ctx, table, {kAny, kAny});
  check_compute("embedding_forward", "y", ctx, y, {tokens.dim(0), table.dim(1)}, Strides::kRows);
  if (tokens.dim(0) == 0) return;
  if (runs_on_cpu(ctx)) return cpu::gather_rows(y, table, tokens);
  SLX_LAUNCH(gather_rows(ctx, y, table, tokens));
}

void embedding_backward(const Context& ctx, Tensor dtable, Tensor dy, Tensor tokens) {
  check_i32("embedding_backward", "tokens", ctx, tokens, {kAny});
  check_f32("embedding_backward", "dtable", ctx, dtable, {kAny, kAny});
  check_compute("embedding_backward", "dy", ctx, dy, {tokens.dim(0), dtable.dim(1)},
                Strides::kRows);
  if (tokens.dim(0) == 0) return;
  if (runs_on_cpu(ctx)) return cpu::scatter_add_rows(dtable, dy, tokens);
  SLX_LAUNCH_SCRATCH(embedding_backward(ctx, dtable, dy, tokens));
}

}  // namespace slimexx::ops
