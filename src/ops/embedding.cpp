#include "slimexx/ops/embedding.h"

#include "ops/checks.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cuda/cuda_ops.h"

namespace slimexx::ops {
namespace {

void check_embedding(const char* op, const Context& ctx, const Tensor& y, const Tensor& table,
                     const Tensor& tokens) {
  check_i32(op, "tokens", ctx, tokens, {kAny});
  check_compute(op, "table", ctx, table, {kAny, kAny});
  check_compute(op, "y", ctx, y, {tokens.dim(0), table.dim(1)}, Strides::kRows);
}

}  // namespace

void embedding_forward(const Context& ctx, Tensor y, Tensor table, Tensor tokens) {
  check_embedding("embedding_forward", ctx, y, table, tokens);
  if (tokens.dim(0) == 0) return;
  if (runs_on_cpu(ctx)) return cpu::gather_rows(y, table, tokens);
  SLX_LAUNCH(gather_rows(ctx, y, table, tokens));
}

void embedding_shard_forward(const Context& ctx, Tensor y, Tensor table, Tensor tokens,
                             int64_t first) {
  check_embedding("embedding_shard_forward", ctx, y, table, tokens);
  SLX_CHECK_GE(first, 0);
  if (tokens.dim(0) == 0) return;
  if (runs_on_cpu(ctx)) return cpu::embedding_shard_forward(y, table, tokens, first);
  SLX_LAUNCH(embedding_shard_forward(ctx, y, table, tokens, first));
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
