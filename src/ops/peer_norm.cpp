#include "slimexx/ops/peer_norm.h"

#include "ops/checks.h"
#include "ops/cuda/cuda_ops.h"

namespace slimexx::ops {

bool sums_in_norm([[maybe_unused]] const Context& ctx, [[maybe_unused]] int64_t num_rows,
                  [[maybe_unused]] int64_t width) {
#ifdef SLX_WITH_CUDA
  if (ctx.device().is_cpu() || ctx.planning() || ctx.groups.tp_memory == nullptr) return false;
  return cuda::sums_in_norm(ctx, num_rows, width);
#else
  return false;
#endif
}

void sum_add_rms_norm_forward(const Context& ctx, Tensor y, Tensor x_sum, Tensor x, Tensor terms,
                              Tensor branch_norm, Tensor w, [[maybe_unused]] float eps) {
  constexpr const char* kOp = "sum_add_rms_norm_forward";
  check_compute(kOp, "x", ctx, x, {kAny, kAny});
  for (const auto& [name, rows] : {std::pair{"x_sum", &x_sum}, {"terms", &terms}})
    check_compute(kOp, name, ctx, *rows, {x.dim(0), x.dim(1)});
  if (branch_norm.defined()) check_compute(kOp, "branch_norm", ctx, branch_norm, {x.dim(1)});
  SLX_CHECK_EQ(y.defined(), w.defined());
  if (y.defined()) {
    check_compute(kOp, "y", ctx, y, {x.dim(0), x.dim(1)});
    check_compute(kOp, "w", ctx, w, {x.dim(1)});
  }
  SLX_CHECK(sums_in_norm(ctx, x.dim(0), x.dim(1)), "{} of {}", kOp, x.shape_text());
  SLX_LAUNCH(sum_add_rms_norm_forward(ctx, y, x_sum, x, terms, branch_norm, w, eps));
}

}  // namespace slimexx::ops
