#include "layer_tape.h"
#include "layer_views.h"
#include "slimexx/base/check.h"
#include "slimexx/model/transformer.h"
#include "slimexx/ops/attention.h"
#include "slimexx/ops/elementwise.h"
#include "slimexx/ops/embedding.h"
#include "slimexx/ops/matmul.h"
#include "slimexx/ops/norm.h"
#include "slimexx/ops/rotary.h"

namespace slimexx::model {
namespace {

using tensor::ArenaScope;

}  // namespace

Tensor view_heads(Tensor rows, int64_t heads, int64_t head_dim) {
  return rows.split_last({heads, head_dim});
}

QkvViews split_qkv(Tensor qkv, Tensor values, const ModelSpec& spec) {
  const int64_t q = spec.q_size(), kv = spec.kv_size();
  return {view_heads(qkv.columns(0, q), spec.num_heads, spec.head_dim),
          view_heads(qkv.columns(q, q + kv), spec.num_kv_heads, spec.head_dim),
          view_heads(values.columns(q + kv, q + 2 * kv), spec.num_kv_heads, spec.head_dim)};
}

// `kept`, or where it is undefined the norm of x.
Tensor Transformer::norm_again(const ops::Context& ctx, Tensor kept, Tensor x, Tensor w) const {
  if (kept.defined()) return kept;
  const Tensor normed = ctx.arena.allocate(x.dtype(), {x.dim(0), x.dim(1)});
  ops::rms_norm_forward(ctx, normed, x, w, static_cast<float>(spec_.rms_norm_eps));
  return normed;
}

// dx enters as the gradient of the layer's output and leaves as that of x_mid.
void Transformer::mlp_block_backward(const ops::Context& ctx, const LayerParameters& w,
                                     const LayerParameters& g, const LayerTape& tape, Tensor dx,
                                     bool accumulate) const {
  const int64_t tokens = dx.dim(0);
  const auto eps = static_cast<float>(spec_.rms_norm_eps);
  ArenaScope scope(ctx.arena);
  const auto rows = [&](int64_t width) { return ctx.arena.allocate(dx.dtype(), {tokens, width}); };
  Tensor ddown = dx;
  if (spec_.sandwich_norms) {
    ddown = rows(spec_.hidden_size);
    ops::rms_norm_backward(ctx, ddown, g.post_mlp_norm, dx, tape.down_raw, w.post_mlp_norm, eps,
                           false);
  }
  const Tensor dh = rows(spec_.intermediate_size);
  ops::matmul_backward_input(ctx, dh, ddown, w.down_weight, false);
  // One pass over gate_up: its gradient takes its place, and h, where it must be made, that of dh.
  const Tensor dgate_up = tape.gate_up, h = tape.h.defined() ? tape.h : dh;
  ops::swiglu_backward(ctx, dgate_up, tape.h.defined() ? Tensor{} : h, dh, tape.gate_up);
  ops::matmul_backward_weight(ctx, g.down_weight, g.down_bias, ddown, h, accumulate);
  const Tensor normed = norm_again(ctx, tape.mid_normed, tape.x_mid, w.mlp_norm);
  const Tensor dnormed = rows(spec_.hidden_size);
  ops::matmul_backward_weight(ctx, g.gate_up_weight, g.gate_up_bias, dgate_up, normed, accumulate);
  ops::matmul_backward_input(ctx, dnormed, dgate_up, w.gate_up_weight, false);
  ops::rms_norm_backward(ctx, dx, g.mlp_norm, dnormed, tape.x_mid, w.mlp_norm, eps, true);
}

// dx enters as the gradient of x_mid and leaves as that of the layer's input.
void Transformer::attention_block_backward(const ops::Context& ctx, const LayerParameters& w,
                                           const LayerParameters& g, const Batch& batch,
                                           const LayerTape& tape, Tensor dx, bool accumulate,
                                           const std::function<void()>& attention_next) const {
  const int64_t tokens = dx.dim(0);
  const auto eps = static_cast<float>(spec_.rms_norm_eps);
  ArenaScope scope(ctx.arena);
  const auto rows = [&](int64_t width) { return ctx.arena.allocate(dx.dtype(), {tokens, width}); };
  Tensor do_raw = dx;
  if (spec_.sandwich_norms) {
    do_raw = rows(spec_.hidden_size);
    ops::rms_norm_backward(ctx, do_raw, g.post_attention_norm, dx, tape.o_raw,
                           w.post_attention_norm, eps, false);
  }
  const Tensor dattention = rows(spec_.q_size()), dqkv = rows(spec_.qkv_size());
  ops::matmul_backward_weight(ctx, g.o_weight, g.o_bias, do_raw, tape.attention, accumulate);
  attention_next();
  ops::matmul_backward_input(ctx, dattention, do_raw, w.o_weight, false);
  const QkvViews qkv = split_qkv(tape.qkv, spec_.qk_norm ? tape.qkv_raw : tape.qkv, spec_);
  const QkvViews d = split_qkv(dqkv, dqkv, spec_);
  const auto heads = [&](Tensor t) { return view_heads(t, spec_.num_heads, spec_.head_dim); };
  ops::attention_backward(ctx, d.q, d.k, d.v, heads(dattention), qkv.q, qkv.k, qkv.v,
                          heads(tape.attention), tape.lse, batch.attention, attention_scale(spec_));
  ops::qk_norm_rotary_backward(ctx, dqkv, g.q_norm, g.k_norm, tape.qkv_raw, w.q_norm, w.k_norm, eps,
                               rotary_table(), batch.positions, qkv_heads(spec_));
  const Tensor normed = norm_again(ctx, tape.normed, tape.x, w.input_norm);
  const Tensor dnormed = rows(spec_.hidden_size);
  ops::matmul_backward_weight(ctx, g.qkv_weight, g.qkv_bias, dqkv, normed, accumulate);
  ops::matmul_backward_input(ctx, dnormed, dqkv, w.qkv_weight, false);
  ops::rms_norm_backward(ctx, dx, g.input_norm, dnormed, tape.x, w.input_norm, eps, true);
}

// Fills the tape again from what was kept: all but the layer's output, which backward does not
// read. The norms and h that this makes on the way stay for backward.
void Transformer::recompute_layer(const ops::Context& ctx, const LayerParameters& w,
                                  const Batch& batch, int64_t layer, LayerTape& tape) const {
  const LayerTape kept = tape;
  const int64_t tokens = tape.x.dim(0);
  const auto eps = static_cast<float>(spec_.rms_norm_eps);
  const auto rows = [&](int64_t width) {
    return ctx.arena.allocate(tape.x.dtype(), {tokens, width});
  };
  allocate_rest(ctx.arena, spec_, tokens, true, tape);
  if (!kept.qkv.defined()) {
    tape.normed = norm_again(ctx, {}, tape.x, w.input_norm);
    project_qkv(ctx, w, batch, layer, tape, tape.normed);
  }
  if (!kept.x_mid.defined()) {
    tape.mid_normed = rows(spec_.hidden_size);
    add_attention(ctx, w, tape, tape.mid_normed, kept.o_raw.defined());
  }
  if (!kept.gate_up.defined()) {
    if (!tape.mid_normed.defined()) {
      tape.mid_normed = rows(spec_.hidden_size);
      ops::rms_norm_forward(ctx, tape.mid_normed, tape.x_mid, w.mlp_norm, eps);
    }
    project_up(ctx, w, tape, tape.mid_normed);
  }
  if (spec_.sandwich_norms && !kept.down_raw.defined()) {
    tape.h = rows(spec_.intermediate_size);
    ops::swiglu_forward(ctx, tape.h, tape.gate_up);
    ops::matmul_forward(ctx, tape.down_raw, tape.h, w.down_weight, w.down_bias);
  }
}

void Transformer::backward(const ops::Context& ctx, const ModelParameters& weights,
                           const ModelParameters& gradients, const Batch& batch, const Tape& tape,
                           Tensor dx, const BackwardHooks& hooks) const {
  SLX_CHECK_EQ(static_cast<int64_t>(tape.layers.size()), spec_.num_layers);
  for (int64_t layer = spec_.num_layers - 1; layer >= 0; --layer) {
    const auto l = static_cast<size_t>(layer);
    ArenaScope scope(ctx.arena);
    LayerTape layer_tape = tape.layers[l];
    if (tape.keep.of(layer) != LayerKeep::kAll)
      recompute_layer(ctx, weights.layers[l], batch, layer, layer_tape);
    const LayerParameters &w = weights.layers[l], &g = gradients.layers[l];
    mlp_block_backward(ctx, w, g, layer_tape, dx, !gradients.is_fresh);
    attention_block_backward(ctx, w, g, batch, layer_tape, dx, !gradients.is_fresh, [&] {
      if (hooks.attention_next) hooks.attention_next(layer);
    });
    if (hooks.layer_done) hooks.layer_done(layer);
  }
  ops::embedding_backward(ctx, gradients.embedding, dx, batch.tokens);
}

}  // namespace slimexx::model
