#include "slimexx/ops/cache_rows.h"

#include "ops/attention_checks.h"
#include "ops/checks.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cuda/cuda_ops.h"

namespace slimexx::ops {

void round_keys(const Context& ctx, Tensor keys, const CacheRows& pages, Tensor slots) {
  constexpr const char* kOp = "round_keys";
  check_compute(kOp, "keys", ctx, keys, {kAny, kAny, kAny}, Strides::kRows);
  if (pages.defined()) {
    SLX_CHECK(pages.is_fp8());
    check_pages(kOp, "pages", ctx, pages, {kAny, kAny, keys.dim(1), keys.dim(2)});
    check_i32(kOp, "slots", ctx, slots, {keys.dim(0)});
  }
  if (keys.dim(0) == 0) return;
  if (runs_on_cpu(ctx)) return cpu::round_keys(keys, pages, slots);
  SLX_CHECK_EQ(keys.dim(1), 1);
  SLX_LAUNCH(round_keys(ctx, keys, pages, slots));
}

void round_latent_rows(const Context& ctx, Tensor latent, int64_t rank, Tensor pages,
                       Tensor slots) {
  constexpr const char* kOp = "round_latent_rows";
  check_compute(kOp, "latent", ctx, latent, {kAny, kAny}, Strides::kRows);
  SLX_CHECK_LE(rank, latent.dim(1));
  check_latent_pages(kOp, ctx, pages, rank, latent.dim(1) - rank);
  if (pages.defined()) check_i32(kOp, "slots", ctx, slots, {latent.dim(0)});
  if (latent.dim(0) == 0) return;
  if (runs_on_cpu(ctx)) return cpu::round_latent_rows(latent, rank, pages, slots);
  SLX_LAUNCH(round_latent_rows(ctx, latent, rank, pages, slots));
}

}  // namespace slimexx::ops
