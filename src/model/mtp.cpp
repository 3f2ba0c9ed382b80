// Forward and backward of one MTP layer.
#include "slimexx/model/mtp.h"

#include "model/layer_steps.h"
#include "slimexx/model/decoder.h"
#include "slimexx/ops/elementwise.h"
#include "slimexx/ops/matmul.h"
#include "slimexx/ops/norm.h"

namespace slimexx::model {
namespace {

using tensor::ArenaScope;

Tensor allocate_rows(const ops::Context& ctx, int64_t num_rows, int64_t width) {
  return ctx.arena.allocate(tensor::compute_dtype(ctx.device()), {num_rows, width});
}

// Writes x [T,H], the input of the MTP layer's decoder layer, and its norm. Fills the tape's
// tensors on the way.
void join(const ops::Context& ctx, const ModelParameters& weights, const MtpParameters<Tensor>& w,
          const Batch& batch, float eps, const MtpTape& tape, Tensor x, Tensor normed) {
  const int64_t h = x.dim(1);
  embed(ctx, weights.embedding, batch, tape.embedded);
  ops::rms_norm_forward(ctx, tape.joined.columns(0, h), tape.embedded, w.embedding_norm, eps);
  ops::rms_norm_forward(ctx, tape.joined.columns(h, 2 * h), tape.hidden, w.hidden_norm, eps);
  ops::matmul_forward(ctx, x, tape.joined, {w.input});
  ops::rms_norm_forward(ctx, normed, x, w.layer.input_norm, eps);
}

}  // namespace

Tensor mtp_forward(const ops::Context& ctx, const Decoder& decoder, const ModelParameters& weights,
                   size_t index, const Batch& batch, Tensor hidden, MtpTape& tape) {
  const ModelSpec& spec = decoder.local_spec();
  const MtpParameters<Tensor>& w = weights.mtp[index];
  const LayerSpec& layer = spec.mtp[index].layer;
  const RowCounts rows{own_rows(batch, ctx.groups).size(), batch.tokens.dim(0)};
  const int64_t tokens = rows.own, h = spec.hidden_size;
  const auto eps = static_cast<float>(spec.rms_norm_eps);
  const ops::RotaryTable rotary = decoder.rotary_table();
  const Tensor y = allocate_rows(ctx, tokens, h), x = allocate_rows(ctx, tokens, h);
  const LayerPlace place{
      .model = spec, .spec = layer, .rotary = rotary, .batch = batch, .pages = {}};
  LayerInput in{.x = x};
  if (key_choice(layer).selects) in.selected = allocate_selection(ctx, place);
  tape = {.embedded = allocate_rows(ctx, tokens, h),
          .hidden = hidden,
          .joined = allocate_rows(ctx, tokens, 2 * h),
          .layer = empty_tape(layer, in)};
  // Keep everything: backward follows immediately, so recomputing would need the same memory.
  allocate_kept(ctx.arena, spec, layer, rows, LayerKeep::kAll, tape.layer);
  const ArenaScope scope(ctx.arena);
  const Tensor normed = allocate_rows(ctx, tokens, h);
  join(ctx, weights, w, batch, eps, tape, x, normed);
  layer_forward(ctx, place, w.layer, tape.layer, normed, {.x = y}, {});
  return y;
}

Tensor mtp_step(const ops::Context& ctx, const Decoder& decoder, const ModelParameters& weights,
                size_t index, const Batch& batch, Tensor hidden, const LayerPages& pages) {
  const ModelSpec& spec = decoder.local_spec();
  const MtpParameters<Tensor>& w = weights.mtp[index];
  const LayerSpec& layer = spec.mtp[index].layer;
  const int64_t tokens = hidden.dim(0), h = spec.hidden_size;
  const ops::RotaryTable rotary = decoder.rotary_table();
  const Tensor y = allocate_rows(ctx, tokens, h);
  const ArenaScope scope(ctx.arena);
  const Tensor x = allocate_rows(ctx, tokens, h), normed = allocate_rows(ctx, tokens, h);
  const LayerPlace place{
      .model = spec, .spec = layer, .rotary = rotary, .batch = batch, .pages = pages};
  LayerInput in{.x = x};
  if (key_choice(layer).selects) in.selected = allocate_selection(ctx, place);
  const MtpTape tape{.embedded = allocate_rows(ctx, tokens, h),
                     .hidden = hidden,
                     .joined = allocate_rows(ctx, tokens, 2 * h),
                     .layer = empty_tape(layer, in)};
  join(ctx, weights, w, batch, static_cast<float>(spec.rms_norm_eps), tape, x, normed);
  layer_forward(ctx, place, w.layer, tape.layer, normed, {.x = y}, {});
  return y;
}

void mtp_backward(const ops::Context& ctx, const Decoder& decoder, const ModelParameters& weights,
                  const ModelParameters& gradients, size_t index, const Batch& batch,
                  const MtpTape& tape, Tensor dx, bool accumulate) {
  const ModelSpec& spec = decoder.local_spec();
  const MtpParameters<Tensor>&w = weights.mtp[index], &g = gradients.mtp[index];
  const int64_t tokens = dx.dim(0), h = spec.hidden_size;
  const auto eps = static_cast<float>(spec.rms_norm_eps);
  const ops::RotaryTable rotary = decoder.rotary_table();
  const ArenaScope scope(ctx.arena);
  layer_backward(
      ctx,
      {.model = spec, .spec = spec.mtp[index].layer, .rotary = rotary, .batch = batch, .pages = {}},
      w.layer, g.layer, tape.layer, dx, accumulate, [] {});
  const Tensor djoined = allocate_rows(ctx, tokens, 2 * h), unused = allocate_rows(ctx, tokens, h);
  ops::matmul_backward_weight(ctx, g.input, {}, dx, tape.joined, accumulate);
  ops::matmul_backward_input(ctx, djoined, dx, w.input, false);
  ops::rms_norm_backward(ctx, unused, g.embedding_norm, djoined.columns(0, h), tape.embedded,
                         w.embedding_norm, eps, false);
  ops::rms_norm_backward(ctx, dx, g.hidden_norm, djoined.columns(h, 2 * h), tape.hidden,
                         w.hidden_norm, eps, false);
}

}  // namespace slimexx::model
