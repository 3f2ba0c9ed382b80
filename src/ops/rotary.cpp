#include "slimexx/ops/rotary.h"

#include "ops/attention_checks.h"
#include "ops/checks.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cuda/cuda_ops.h"

namespace slimexx::ops {
namespace {

void check_tables(const char* op, const Context& ctx, const Tensor& cos, const Tensor& sin,
                  const Tensor& positions, int64_t num_tokens, int64_t head_dim) {
  check_f32(op, "cos", ctx, cos, {kAny, kAny});
  check_f32(op, "sin", ctx, sin, {cos.dim(0), cos.dim(1)});
  check_i32(op, "positions", ctx, positions, {num_tokens});
  SLX_CHECK_LE(2 * cos.dim(1), head_dim);
}

struct Views {
  Tensor q, k, v;  // [T,heads,D]; v is undefined if the rows have no values
};

Views split(Tensor qkv, const QkvHeads& heads) {
  const int64_t q = heads.query_heads * heads.head_dim, kv = heads.kv_heads * heads.head_dim;
  Views views{qkv.columns(0, q).split_last({heads.query_heads, heads.head_dim}),
              qkv.columns(q, q + kv).split_last({heads.kv_heads, heads.head_dim}),
              {}};
  if (qkv.dim(1) > q + kv)
    views.v = qkv.columns(q + kv, q + 2 * kv).split_last({heads.kv_heads, heads.head_dim});
  return views;
}

int64_t qkv_size(const QkvHeads& heads) {
  return (heads.query_heads + 2 * heads.kv_heads) * heads.head_dim;
}

void forward_on_cpu(Tensor out, Tensor in, Tensor q_norm, Tensor k_norm, float eps,
                    const RotaryTable& table, Tensor positions, const KvSlots& kv,
                    const QkvHeads& heads) {
  const Views raw = split(in, heads), done = split(out, heads);
  if (q_norm.defined()) {
    cpu::norm_forward(done.q, raw.q, q_norm, eps);
    cpu::norm_forward(done.k, raw.k, k_norm, eps);
  }
  if (out.raw() != in.raw()) {
    const int64_t copied =
        q_norm.defined() ? (heads.query_heads + heads.kv_heads) * heads.head_dim : 0;
    cpu::copy_rows(out.columns(copied, out.dim(1)), in.columns(copied, out.dim(1)));
  }
  cpu::rotary(done.q, table.cos, table.sin, positions, table.style, false);
  cpu::rotary(done.k, table.cos, table.sin, positions, table.style, false);
  if (kv.is_fp8) {
    cpu::round_keys(done.k, kv.k_pages, kv.slots);
    cpu::round_keys(done.v.defined() ? done.v : raw.v, kv.v_pages, kv.slots);
  } else if (kv.k_pages.defined()) {
    cpu::write_kv_pages(kv.k_pages.rows, kv.v_pages.rows, done.k, raw.v, kv.slots);
  }
}

}  // namespace

void rotary(const Context& ctx, Tensor x, Tensor cos, Tensor sin, Tensor positions,
            RotaryStyle style, bool inverse) {
  constexpr const char* kOp = "rotary";
  check_compute(kOp, "x", ctx, x, {kAny, kAny, kAny}, Strides::kRows);
  check_tables(kOp, ctx, cos, sin, positions, x.dim(0), x.dim(2));
  if (x.dim(0) == 0) return;
  if (runs_on_cpu(ctx)) return cpu::rotary(x, cos, sin, positions, style, inverse);
  SLX_LAUNCH(rotate_head_columns(ctx, x, 0, x, 0, x.dim(2), {cos, sin, style}, positions, inverse));
}

void rotate_head_columns(const Context& ctx, Tensor y, int64_t begin, Tensor x, int64_t x_begin,
                         int64_t width, const RotaryTable& table, Tensor positions, bool inverse) {
  constexpr const char* kOp = "rotate_head_columns";
  check_compute(kOp, "y", ctx, y, {kAny, kAny, kAny}, Strides::kRows);
  check_compute(kOp, "x", ctx, x, {y.dim(0), y.dim(1), kAny}, Strides::kRows);
  check_tables(kOp, ctx, table.cos, table.sin, positions, y.dim(0), width);
  SLX_CHECK(begin + width <= y.dim(2) && x_begin + width <= x.dim(2) && width % 2 == 0,
            "{}: columns from {} and {}, {} wide, do not fit {} and {}", kOp, begin, x_begin, width,
            y.shape_text(), x.shape_text());
  if (y.dim(0) == 0) return;
  if (runs_on_cpu(ctx)) {
    cpu::copy_head_columns(y, begin, x, x_begin, width);
    return cpu::rotary(y, table.cos, table.sin, positions, table.style, inverse, begin);
  }
  SLX_LAUNCH(rotate_head_columns(ctx, y, begin, x, x_begin, width, table, positions, inverse));
}

void latent_rows_forward(const Context& ctx, Tensor latent, Tensor raw, Tensor norm, float eps,
                         const RotaryTable& table, Tensor positions, const LatentSlots& kv,
                         const NormedRows& queries) {
  constexpr const char* kOp = "latent_rows_forward";
  check_compute(kOp, "raw", ctx, raw, {kAny, kAny}, Strides::kRows);
  check_compute(kOp, "latent", ctx, latent, {raw.dim(0), raw.dim(1)}, Strides::kRows);
  check_compute(kOp, "norm", ctx, norm, {kAny});
  const int64_t rank = norm.dim(0), width = raw.dim(1) - rank;
  check_tables(kOp, ctx, table.cos, table.sin, positions, raw.dim(0), width);
  if (kv.is_fp8) {
    check_latent_pages(kOp, ctx, kv.pages, rank, width);
  } else if (kv.pages.defined()) {
    check_compute(kOp, "pages", ctx, kv.pages, {kAny, kAny, 1, raw.dim(1)});
  }
  if (kv.pages.defined()) check_i32(kOp, "slots", ctx, kv.slots, {raw.dim(0)});
  const auto& [q_y, q_x, q_w] = queries;
  if (q_y.defined()) {
    check_compute(kOp, "queries.w", ctx, q_w, {kAny});
    check_compute(kOp, "queries.x", ctx, q_x, {raw.dim(0), q_w.dim(0)}, Strides::kRows);
    check_compute(kOp, "queries.y", ctx, q_y, {raw.dim(0), q_w.dim(0)}, Strides::kRows);
  }
  if (raw.dim(0) == 0) return;
  if (runs_on_cpu(ctx)) {
    if (q_y.defined()) cpu::norm_forward(q_y, q_x, q_w, eps);
    cpu::norm_forward(latent.columns(0, rank), raw.columns(0, rank), norm, eps);
    const Tensor key = latent.columns(rank, raw.dim(1)).split_last({1, width});
    cpu::copy_head_columns(key, 0, raw.columns(rank, raw.dim(1)).split_last({1, width}), 0, width);
    cpu::rotary(key, table.cos, table.sin, positions, table.style, false);
    if (kv.is_fp8) return cpu::round_latent_rows(latent, rank, kv.pages, kv.slots);
    if (kv.pages.defined())
      cpu::write_kv_pages(kv.pages, {}, latent.split_last({1, raw.dim(1)}), {}, kv.slots);
    return;
  }
  SLX_LAUNCH(latent_rows_forward(ctx, latent, raw, norm, eps, table, positions, kv, queries));
}

void latent_queries_forward(const Context& ctx, Tensor queries, Tensor nope, Tensor w, Tensor rope,
                            const RotaryTable& table, Tensor positions) {
  constexpr const char* kOp = "latent_queries_forward";
  check_compute(kOp, "w", ctx, w, {kAny, kAny, kAny});
  const int64_t tokens = nope.dim(0), heads = w.dim(0), rank = w.dim(2), width = rope.dim(2);
  check_compute(kOp, "nope", ctx, nope, {kAny, heads, w.dim(1)}, Strides::kRows);
  check_compute(kOp, "rope", ctx, rope, {tokens, heads, kAny}, Strides::kRows);
  check_compute(kOp, "queries", ctx, queries, {tokens, heads, rank + width}, Strides::kRows);
  check_tables(kOp, ctx, table.cos, table.sin, positions, tokens, width);
  SLX_CHECK_EQ(width % 2, 0);
  if (tokens == 0) return;
  if (runs_on_cpu(ctx)) {
    cpu::head_matmul_backward_input(queries, nope, w);
    cpu::copy_head_columns(queries, rank, rope, 0, width);
    return cpu::rotary(queries, table.cos, table.sin, positions, table.style, false, rank);
  }
  SLX_LAUNCH(latent_queries_forward(ctx, queries, nope, w, rope, table, positions));
}

void qk_norm_rotary_forward(const Context& ctx, Tensor out, Tensor in, Tensor q_norm, Tensor k_norm,
                            float eps, const RotaryTable& table, Tensor positions,
                            const KvSlots& kv, const QkvHeads& heads) {
  constexpr const char* kOp = "qk_norm_rotary_forward";
  check_compute(kOp, "in", ctx, in, {kAny, qkv_size(heads)});
  check_compute(kOp, "out", ctx, out, {in.dim(0), kAny});
  // Tensors without elements may share an address.
  const bool in_place = !ctx.planning() && in.dim(0) > 0 && out.raw() == in.raw();
  const int64_t without_values = in.dim(1) - heads.kv_heads * heads.head_dim;
  SLX_CHECK(out.dim(1) == in.dim(1) || (out.dim(1) == without_values && !in_place),
            "{}: out {} and in {} have different numbers of heads", kOp, out.shape_text(),
            in.shape_text());
  check_tables(kOp, ctx, table.cos, table.sin, positions, in.dim(0), heads.head_dim);
  SLX_CHECK_EQ(q_norm.defined(), k_norm.defined());
  if (q_norm.defined()) {
    check_compute(kOp, "q_norm", ctx, q_norm, {heads.head_dim});
    check_compute(kOp, "k_norm", ctx, k_norm, {heads.head_dim});
  }
  if (kv.k_pages.defined()) {
    const Tensor& k = kv.k_pages.rows;
    for (const auto& [name, pages] :
         {std::pair{"k_pages", &kv.k_pages}, {"v_pages", &kv.v_pages}}) {
      SLX_CHECK_EQ(pages->is_fp8(), kv.is_fp8);
      check_pages(kOp, name, ctx, *pages, {k.dim(0), k.dim(1), heads.kv_heads, heads.head_dim});
    }
    check_i32(kOp, "slots", ctx, kv.slots, {in.dim(0)});
  }
  if (in.dim(0) == 0) return;
  if (runs_on_cpu(ctx))
    return forward_on_cpu(out, in, q_norm, k_norm, eps, table, positions, kv, heads);
  SLX_LAUNCH(
      qk_norm_rotary_forward(ctx, out, in, q_norm, k_norm, eps, table, positions, kv, heads));
}

void qk_norm_rotary_backward(const Context& ctx, Tensor d, Tensor dq_norm, Tensor dk_norm,
                             Tensor raw, Tensor q_norm, Tensor k_norm, float eps,
                             const RotaryTable& table, Tensor positions, const QkvHeads& heads) {
  constexpr const char* kOp = "qk_norm_rotary_backward";
  check_compute(kOp, "d", ctx, d, {kAny, qkv_size(heads)});
  check_tables(kOp, ctx, table.cos, table.sin, positions, d.dim(0), heads.head_dim);
  SLX_CHECK_EQ(q_norm.defined(), k_norm.defined());
  if (q_norm.defined()) {
    check_compute(kOp, "raw", ctx, raw, {d.dim(0), d.dim(1)});
    for (const auto& [name, w] : {std::pair{"q_norm", &q_norm}, {"k_norm", &k_norm}})
      check_compute(kOp, name, ctx, *w, {heads.head_dim});
  }
  if (d.dim(0) == 0) return;
  const tensor::ArenaScope scope(ctx.arena);
  if (q_norm.defined()) {
    for (const auto& [name, dw] : {std::pair{"dq_norm", &dq_norm}, {"dk_norm", &dk_norm}}) {
      if (!dw->defined())  // result is unused
        *dw = ctx.arena.allocate(tensor::DType::kF32, {heads.head_dim});
      check_f32(kOp, name, ctx, *dw, {heads.head_dim});
    }
  }
  if (runs_on_cpu(ctx)) {
    const Views g = split(d, heads);
    cpu::rotary(g.q, table.cos, table.sin, positions, table.style, true);
    cpu::rotary(g.k, table.cos, table.sin, positions, table.style, true);
    if (!q_norm.defined()) return;
    const Views r = split(raw, heads);
    cpu::norm_backward(g.q, dq_norm, g.q, r.q, q_norm, eps, false);
    cpu::norm_backward(g.k, dk_norm, g.k, r.k, k_norm, eps, false);
    return;
  }
  SLX_LAUNCH_SCRATCH(qk_norm_rotary_backward(ctx, d, dq_norm, dk_norm, raw, q_norm, k_norm, eps,
                                             table, positions, heads));
}

}  // namespace slimexx::ops
