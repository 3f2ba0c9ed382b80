#include "slimexx/kernels/rows.h"

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/rotary_tables.h"
#include "slimexx/base/error.h"

namespace slimexx::ops::cuda {
namespace {

kernels::Element element(const Tensor& x) {
  SLX_CHECK(x.dtype() == tensor::DType::kF32 || x.dtype() == tensor::DType::kBF16, "{}",
            x.shape_text());
  return x.dtype() == tensor::DType::kF32 ? kernels::Element::kF32 : kernels::Element::kBF16;
}

kernels::QkvShape shape_of(const Tensor& qkv, const QkvHeads& heads) {
  return {.tokens = qkv.dim(0),
          .query_heads = heads.query_heads,
          .kv_heads = heads.kv_heads,
          .head_dim = heads.head_dim};
}

}  // namespace

void missing(const char* op) {
  throw Error(ErrorCode::kEnvironment, std::string(op) + " has no kernel of its own on CUDA",
              "use the fused op that contains it");
}

void rms_norm_forward(const Context& ctx, Tensor y, Tensor x, Tensor w, float eps) {
  SLX_CUDA(kernels::rms_norm_forward(y.raw(), y.stride(0), x.raw(), x.stride(0), w.raw(), x.dim(0),
                                     x.dim(1), eps, handle(ctx)));
}

void layer_norm_forward(const Context& ctx, Tensor y, Tensor x, Tensor w, Tensor b, float eps) {
  SLX_CUDA(kernels::layer_norm_forward(y.raw(), y.stride(0), x.raw(), x.stride(0), w.raw(), b.raw(),
                                       x.dim(0), x.dim(1), eps, handle(ctx)));
}

void add_rms_norm_forward(const Context& ctx, Tensor y, Tensor x_sum, Tensor x, Tensor branch,
                          Tensor branch_norm, Tensor w, float eps) {
  SLX_CUDA(kernels::add_rms_norm_forward(y.raw(), x_sum.raw(), x.raw(), branch.raw(),
                                         branch_norm.raw(), w.raw(), x.dim(0), x.dim(1), eps,
                                         handle(ctx)));
}

void rms_norm_backward(const Context& ctx, Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor w,
                       float eps, bool accumulate) {
  const ScratchScope scratch(ctx, kernels::rms_norm_backward_workspace(x.dim(0), x.dim(1)));
  if (ctx.planning()) return;
  SLX_CUDA(kernels::rms_norm_backward(dx.raw(), dx.stride(0), dw.f32(), dy.raw(), dy.stride(0),
                                      x.raw(), x.stride(0), w.raw(), x.dim(0), x.dim(1), eps,
                                      accumulate, scratch.data(), handle(ctx)));
}

void qk_norm_rotary_forward(const Context& ctx, Tensor out, Tensor in, Tensor q_norm, Tensor k_norm,
                            float eps, const RotaryTable& rotary, Tensor positions,
                            const KvSlots& kv, const QkvHeads& heads) {
  const kernels::KvPages pages{
      .k = kv.k_pages.raw(), .v = kv.v_pages.raw(), .slots = kv.slots.i32()};
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
                         const RotaryTable& table, Tensor positions, Tensor pages, Tensor slots,
                         const NormedRows& queries) {
  const auto& [q_y, q_x, q_w] = queries;
  kernels::LatentRows rows{.y = latent.raw(),
                           .x = raw.raw(),
                           .norm = norm.raw(),
                           .pages = pages.raw(),
                           .slots = slots.i32(),
                           .y_stride = latent.stride(0),
                           .x_stride = raw.stride(0),
                           .tokens = raw.dim(0),
                           .rank = norm.dim(0),
                           .rotary_width = raw.dim(1) - norm.dim(0)};
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

void swiglu_forward(const Context& ctx, Tensor h, Tensor gate_up) {
  SLX_CUDA(kernels::swiglu_forward(h.raw(), gate_up.raw(), h.dim(0), h.dim(1), handle(ctx)));
}

void swiglu_backward(const Context& ctx, Tensor dgate_up, Tensor h, Tensor dh, Tensor gate_up) {
  SLX_CUDA(kernels::swiglu_backward(dgate_up.raw(), h.raw(), dh.raw(), gate_up.raw(), dh.dim(0),
                                    dh.dim(1), handle(ctx)));
}

void add(const Context& ctx, Tensor y, Tensor a, Tensor b) {
  SLX_CUDA(kernels::add(y.raw(), a.raw(), b.raw(), element(y), y.num_elements(), handle(ctx)));
}

void add_scaled(const Context& ctx, Tensor y, Tensor x, float factor) {
  SLX_CUDA(
      kernels::add_scaled(y.raw(), x.raw(), factor, element(y), y.num_elements(), handle(ctx)));
}

void scale(const Context& ctx, Tensor y, float factor) {
  SLX_CUDA(kernels::scale(y.raw(), factor, element(y), y.num_elements(), handle(ctx)));
}

void fill_zero(const Context& ctx, Tensor y) {
  SLX_CUDA(cudaMemsetAsync(y.raw(), 0, static_cast<size_t>(y.size_bytes()), handle(ctx)));
}

void copy(const Context& ctx, Tensor y, Tensor x) {
  if (y.dtype() == x.dtype()) return tensor::copy_bytes(ctx.stream, y, x);
  SLX_CUDA(
      kernels::convert(y.raw(), element(y), x.raw(), element(x), x.num_elements(), handle(ctx)));
}

void copy_rows(const Context& ctx, Tensor y, Tensor x) {
  // Copies elements of two bytes: cudaMemcpy2D takes 2.2 times as long.
  SLX_CUDA(kernels::copy_rows(y.raw(), 2 * y.stride(0), x.raw(), 2 * x.stride(0), x.dim(0),
                              2 * x.dim(1), handle(ctx)));
}

void gather_rows(const Context& ctx, Tensor y, Tensor x, Tensor rows) {
  SLX_CUDA(kernels::gather_rows(y.raw(), y.stride(0), x.raw(), x.stride(0), rows.i32(), rows.dim(0),
                                x.dim(1), handle(ctx)));
}

void scatter_add_rows(const Context& ctx, Tensor dx, Tensor dy, Tensor rows) {
  SLX_CUDA(kernels::scatter_add_rows(dx.raw(), dx.stride(0), dy.raw(), dy.stride(0), rows.i32(),
                                     rows.dim(0), dx.dim(1), handle(ctx)));
}

// The kernel copies rows of two bf16 bit by bit; one row is four bytes, an i32 or an f32.
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
