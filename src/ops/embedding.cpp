#include "ops/checks.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cuda/cuda_ops.h"

namespace slimexx::ops {

void embedding_forward(Stream stream, Tensor y, Tensor table, Tensor tokens) {
  check_i32("embedding_forward", "tokens", stream, tokens, {kAny});
  check_compute("embedding_forward", "table", stream, table, {kAny, kAny});
  check_compute("embedding_forward", "y", stream, y, {tokens.dim(0), table.dim(1)}, Strides::kRows);
  if (runs_on_cpu(stream)) return cpu::gather_rows(y, table, tokens);
  SLX_LAUNCH(gather_rows(stream, y, table, tokens));
}

void embedding_backward(Stream stream, Tensor dtable, Tensor dy, Tensor tokens) {
  check_i32("embedding_backward", "tokens", stream, tokens, {kAny});
  check_f32("embedding_backward", "dtable", stream, dtable, {kAny, kAny});
  check_compute("embedding_backward", "dy", stream, dy, {tokens.dim(0), dtable.dim(1)},
                Strides::kRows);
  if (runs_on_cpu(stream)) return cpu::scatter_add_rows(dtable, dy, tokens);
  SLX_LAUNCH_SCRATCH(embedding_backward(stream, dtable, dy, tokens));
}

}  // namespace slimexx::ops
