#include "slimexx/kernels/rows.h"

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/rotary_tables.h"

namespace slimexx::ops::cuda {
namespace {

kernels::QkvShape shape_of(const Tensor& qkv, const QkvHeads& heads) {
  return {.tokens = qkv.dim(0),
          .query_heads = heads.query_heads,
          .kv_heads = heads.kv_heads,
          .head_dim = heads.head_dim};
}

}  // namespace

void qk_norm_rotary_forward(const Context& ctx, Tensor out, Tensor in, Tensor q_norm, Tensor k_norm,
                            float eps, const RotaryTable& rotary, Tensor positions,
                            const KvSlots& kv, const QkvHeads& heads) {
  const kernels::KvPages pages{.k = kv.k_pages.rows.raw(),
                               .v = kv.v_pages.rows.raw(),
                               .slots = kv.slots.i32(),
                               .round_f8 = kv.is_fp8,
                               .k_scales = kv.k_pages.scales.raw(),
                               .v_scales = kv.v_pages.scales.raw(),
                               .page_tokens = kv.k_pages.defined() ? kv.k_pages.rows.dim(1) : 0};
  SLX_CUDA(kernels::qk_norm_rotary_forward(
      out.raw(), out.dim(1) / heads.head_dim, in.raw(), q_norm.raw(), k_norm.raw(), eps,
      rotary_tables(rotary, positions), pages, shape_of(in, heads), handle(ctx)));
}

void qk_norm_rotary_backward(const Context& ctx, Tensor d, Tensor dq_norm, Tensor dk_norm,
                             Tensor raw, Tensor q_norm, Tensor k_norm, float eps,
                             const RotaryTable& rotary, Tensor positions, const QkvHeads& heads) {
  const kernels::QkvShape shape = shape_of(d, heads);
  const ScratchScope scratch(
      ctx, q_norm.defined() ? kernels::qk_norm_rotary_backward_workspace(shape) : 0);
  if (ctx.planning()) return;
  SLX_CUDA(kernels::qk_norm_rotary_backward(
      d.raw(), dq_norm.f32(), dk_norm.f32(), q_norm.defined() ? raw.raw() : nullptr, q_norm.raw(),
      k_norm.raw(), eps, rotary_tables(rotary, positions), shape, scratch.data(), handle(ctx)));
}

void latent_rows_forward(const Context& ctx, Tensor latent, Tensor raw, Tensor norm, float eps,
                         const RotaryTable& table, Tensor positions, const LatentSlots& kv,
                         const NormedRows& queries) {
  const auto& [q_y, q_x, q_w] = queries;
  kernels::LatentRows rows{.y = latent.raw(),
                           .x = raw.raw(),
                           .norm = norm.raw(),
                           .pages = kv.pages.raw(),
                           .slots = kv.slots.i32(),
                           .y_stride = latent.stride(0),
                           .x_stride = raw.stride(0),
                           .tokens = raw.dim(0),
                           .rank = norm.dim(0),
                           .rotary_width = raw.dim(1) - norm.dim(0),
                           .round_f8 = kv.is_fp8};
  if (q_y.defined() && kernels::norms_latent_queries(q_w.dim(0))) {
    rows.query_y = q_y.raw();
    rows.query_x = q_x.raw();
    rows.query_norm = q_w.raw();
    rows.query_y_stride = q_y.stride(0);
    rows.query_x_stride = q_x.stride(0);
    rows.query_rank = q_w.dim(0);
  } else if (q_y.defined()) {
    cuda::rms_norm_forward(ctx, q_y, q_x, q_w, eps);
  }
  SLX_CUDA(kernels::latent_rows_forward(rows, rotary_tables(table, positions), eps, handle(ctx)));
}

void round_keys(const Context& ctx, Tensor keys, const CacheRows& pages, Tensor slots) {
  SLX_CUDA(kernels::round_index_keys(
      keys.raw(), keys.stride(0), keys.dim(0), keys.dim(2),
      {.rows = pages.rows.raw(), .scales = pages.scales.raw(), .slots = slots.i32()}, handle(ctx)));
}

void round_latent_rows(const Context& ctx, Tensor latent, int64_t rank, Tensor pages,
                       Tensor slots) {
  SLX_CUDA(kernels::round_latent_rows(latent.raw(), latent.stride(0), latent.dim(0), rank,
                                      latent.dim(1) - rank,
                                      {.rows = pages.raw(), .slots = slots.i32()}, handle(ctx)));
}

}  // namespace slimexx::ops::cuda
