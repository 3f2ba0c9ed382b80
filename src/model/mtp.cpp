// Forward and backward of one MTP layer.
#include "slimexx/model/mtp.h"

#include <numeric>
#include <vector>

#include "model/layer_steps.h"
#include "slimexx/model/decoder.h"
#include "slimexx/ops/elementwise.h"
#include "slimexx/ops/embedding.h"
#include "slimexx/ops/matmul.h"
#include "slimexx/ops/norm.h"

namespace slimexx::model {
namespace {

using tensor::ArenaScope;

Tensor allocate_rows(const ops::Context& ctx, int64_t num_rows, int64_t width) {
  return ctx.arena.allocate(tensor::compute_dtype(ctx.device()), {num_rows, width});
}

// 0, 1, 2, ...: a gather by it makes columns of a matrix a matrix of their own, which backward of a
// norm wants.
Tensor number_rows(const ops::Context& ctx, int64_t num_rows) {
  std::vector<int32_t> numbers(static_cast<size_t>(num_rows));
  std::iota(numbers.begin(), numbers.end(), 0);
  const Tensor rows = ctx.arena.allocate(DType::kI32, {num_rows});
  tensor::upload(ctx.stream, rows, numbers.data());
  return rows;
}

}  // namespace

Tensor Decoder::mtp_forward(const ops::Context& ctx, const ModelParameters& weights, size_t index,
                            const Batch& batch, Tensor hidden, MtpTape& tape) const {
  const MtpParameters<Tensor>& w = weights.mtp[index];
  const LayerSpec& layer = spec_.mtp[index].layer;
  const int64_t tokens = batch.tokens.dim(0), h = spec_.hidden_size;
  const auto eps = static_cast<float>(spec_.rms_norm_eps);
  const ops::RotaryTable rotary = rotary_table();
  const Tensor y = allocate_rows(ctx, tokens, h), x = allocate_rows(ctx, tokens, h);
  tape = {.embedded = allocate_rows(ctx, tokens, h),
          .hidden = hidden,
          .joined = allocate_rows(ctx, tokens, 2 * h),
          .layer = empty_tape(layer, x)};
  // Backward follows at once and would need the same memory to make any of it again.
  allocate_kept(ctx.arena, spec_, layer, tokens, LayerKeep::kAll, tape.layer);
  const ArenaScope scope(ctx.arena);
  const Tensor normed = allocate_rows(ctx, tokens, h);
  ops::embedding_forward(ctx, tape.embedded, weights.embedding, batch.tokens);
  ops::rms_norm_forward(ctx, tape.joined.columns(0, h), tape.embedded, w.embedding_norm, eps);
  ops::rms_norm_forward(ctx, tape.joined.columns(h, 2 * h), hidden, w.hidden_norm, eps);
  ops::matmul_forward(ctx, x, tape.joined, w.input, {});
  ops::rms_norm_forward(ctx, normed, x, w.layer.input_norm, eps);
  const LayerPlace place{
      .model = spec_, .spec = layer, .rotary = rotary, .batch = batch, .pages = {}};
  layer_forward(ctx, place, w.layer, tape.layer, normed, {.x = y}, {});
  return y;
}

void Decoder::mtp_backward(const ops::Context& ctx, const ModelParameters& weights,
                           const ModelParameters& gradients, size_t index, const Batch& batch,
                           const MtpTape& tape, Tensor dx, bool accumulate) const {
  const MtpParameters<Tensor>&w = weights.mtp[index], &g = gradients.mtp[index];
  const int64_t tokens = batch.tokens.dim(0), h = spec_.hidden_size;
  const auto eps = static_cast<float>(spec_.rms_norm_eps);
  const ops::RotaryTable rotary = rotary_table();
  const ArenaScope scope(ctx.arena);
  layer_backward(ctx,
                 {.model = spec_,
                  .spec = spec_.mtp[index].layer,
                  .rotary = rotary,
                  .batch = batch,
                  .pages = {}},
                 w.layer, g.layer, tape.layer, dx, accumulate, [] {});
  const Tensor rows = number_rows(ctx, tokens), djoined = allocate_rows(ctx, tokens, 2 * h);
  const Tensor dnormed = allocate_rows(ctx, tokens, h), unused = allocate_rows(ctx, tokens, h);
  ops::matmul_backward_weight(ctx, g.input, {}, dx, tape.joined, accumulate);
  ops::matmul_backward_input(ctx, djoined, dx, w.input, false);
  ops::gather_rows(ctx, dnormed, djoined.columns(0, h), rows);
  ops::rms_norm_backward(ctx, unused, g.embedding_norm, dnormed, tape.embedded, w.embedding_norm,
                         eps, false);
  ops::gather_rows(ctx, dnormed, djoined.columns(h, 2 * h), rows);
  ops::rms_norm_backward(ctx, dx, g.hidden_norm, dnormed, tape.hidden, w.hidden_norm, eps, false);
}

}  // namespace slimexx::model
