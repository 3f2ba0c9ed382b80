#include "slimexx/model/transformer.h"

#include <fmt/format.h>

#include <cmath>

#include "layer_tape.h"
#include "layer_views.h"
#include "rotary_table.h"
#include "slimexx/base/check.h"
#include "slimexx/base/error.h"
#include "slimexx/ops/device_limits.h"
#include "slimexx/ops/elementwise.h"
#include "slimexx/ops/embedding.h"
#include "slimexx/ops/matmul.h"
#include "slimexx/ops/norm.h"

namespace slimexx::model {
namespace {

using tensor::ArenaScope;
using tensor::DType;

using Lookup = Tensor (ParameterStore::*)(ParameterId) const;

ModelParameters bind(const ParameterStore& store, const ModelSpec& spec, Lookup lookup) {
  const auto get = [&](const std::string& name) { return (store.*lookup)(store.find(name)); };
  ModelParameters p;
  p.embedding = get("embedding.weight");
  p.final_norm = get("final_norm.weight");
  p.lm_head = spec.tied_embeddings ? p.embedding : get("lm_head.weight");
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    const std::string own = fmt::format("layers.{}.", layer);
    p.layers.push_back({
        .input_norm = get(own + "input_norm.weight"),
        .qkv_weight = get(own + "attention.qkv.weight"),
        .qkv_bias = get(own + "attention.qkv.bias"),
        .q_norm = get(own + "attention.q_norm.weight"),
        .k_norm = get(own + "attention.k_norm.weight"),
        .o_weight = get(own + "attention.o.weight"),
        .o_bias = get(own + "attention.o.bias"),
        .post_attention_norm = get(own + "post_attention_norm.weight"),
        .mlp_norm = get(own + "mlp_norm.weight"),
        .gate_up_weight = get(own + "mlp.gate_up.weight"),
        .gate_up_bias = get(own + "mlp.gate_up.bias"),
        .down_weight = get(own + "mlp.down.weight"),
        .down_bias = get(own + "mlp.down.bias"),
        .post_mlp_norm = get(own + "post_mlp_norm.weight"),
    });
  }
  return p;
}

}  // namespace

ModelParameters bind_weights(const ParameterStore& store, const ModelSpec& spec) {
  return bind(store, spec, &ParameterStore::weight);
}

ModelParameters as_fresh(ModelParameters gradients) {
  gradients.is_fresh = true;
  return gradients;
}

ModelParameters bind_gradients(const ParameterStore& store, const ModelSpec& spec) {
  return bind(store, spec, &ParameterStore::gradient);
}

namespace {

// Throws Error(kInput) for sizes that the kernels of a device do not serve.
void check_device_sizes(const ModelSpec& spec, tensor::Device device) {
  if (device.is_cpu()) return;
  const auto refuse = [&](const std::string& what, const char* key) {
    throw Error(ErrorCode::kInput, fmt::format("{} on {}", what, tensor::to_string(device)),
                "use --device cpu", key);
  };
  if (spec.head_dim != 64 && spec.head_dim != 128)
    refuse(fmt::format("heads of {} elements; attention serves 64 and 128", spec.head_dim),
           "head_dim");
  if (spec.vocab_size > ops::kMaxVocabulary)
    refuse(fmt::format("a vocabulary of {} tokens; sampling serves up to {}", spec.vocab_size,
                       ops::kMaxVocabulary),
           "vocab_size");
  if (spec.hidden_size > ops::kMaxRowWidth)
    refuse(fmt::format("rows of {} elements; norms serve up to {}", spec.hidden_size,
                       ops::kMaxRowWidth),
           "hidden_size");
}

}  // namespace

Transformer::Transformer(const ModelSpec& spec, tensor::Device device, int64_t max_positions)
    : spec_(spec), max_positions_(max_positions) {
  SLX_CHECK_GT(spec.num_layers, 0);
  check_device_sizes(spec, device);
  const int64_t half = spec.rope.rotary_dim / 2;
  rotary_buffer_ = tensor::Buffer(device, 2 * max_positions * half * 4, "rotary tables");
  cos_ = rotary_buffer_.view(DType::kF32, {max_positions, half});
  sin_ = rotary_buffer_.view(DType::kF32, {max_positions, half}, max_positions * half * 4);
  std::vector<float> cos(static_cast<size_t>(max_positions * half)), sin(cos.size());
  fill_rotary_tables(spec.rope, max_positions, cos, sin);
  const Stream stream = tensor::compute_stream(device);
  tensor::upload(stream, cos_, cos.data());
  tensor::upload(stream, sin_, sin.data());
}

// Legend as in transformer.h. Pre-norm block, with the sandwich norms of GLM-4-0414 where the spec
// has them:
//   a = o(attention(qkv(norm(x))));  x_mid = x + [norm](a)
//   m = down(swiglu(gate_up(norm(x_mid))));  x_out = x_mid + [norm](m)
// Each residual sum also takes the norm that follows it: that of x_out is the next layer's.
void Transformer::project_qkv(const ops::Context& ctx, const LayerParameters& w, const Batch& batch,
                              int64_t layer, const LayerTape& tape, Tensor normed) const {
  const Tensor projected = spec_.qk_norm ? tape.qkv_raw : tape.qkv;
  ops::matmul_forward(ctx, projected, normed, w.qkv_weight, w.qkv_bias);
  ops::KvSlots kv;
  if (!batch.pages.empty()) {
    const LayerPages& pages = batch.pages[static_cast<size_t>(layer)];
    kv = {.k_pages = pages.k, .v_pages = pages.v, .slots = batch.slots};
  }
  ops::qk_norm_rotary_forward(ctx, tape.qkv, projected, w.q_norm, w.k_norm,
                              static_cast<float>(spec_.rms_norm_eps), rotary_table(),
                              batch.positions, kv, qkv_heads(spec_));
}

void Transformer::attend(const ops::Context& ctx, const Batch& batch, int64_t layer,
                         const LayerTape& tape) const {
  const QkvViews qkv = split_qkv(tape.qkv, spec_.qk_norm ? tape.qkv_raw : tape.qkv, spec_);
  const bool paged = !batch.pages.empty();
  const LayerPages pages =
      paged ? batch.pages[static_cast<size_t>(layer)] : LayerPages{qkv.k, qkv.v};
  ops::attention_forward(ctx, view_heads(tape.attention, spec_.num_heads, spec_.head_dim), tape.lse,
                         qkv.q, pages.k, pages.v, batch.attention, attention_scale(spec_));
}

void Transformer::add_attention(const ops::Context& ctx, const LayerParameters& w,
                                const LayerTape& tape, Tensor mid_normed, bool keeps_o) const {
  ArenaScope scope(ctx.arena);
  const Tensor o = spec_.sandwich_norms
                       ? tape.o_raw
                       : ctx.arena.allocate(tape.x.dtype(), {tape.x.dim(0), spec_.hidden_size});
  if (!keeps_o) ops::matmul_forward(ctx, o, tape.attention, w.o_weight, w.o_bias);
  ops::add_rms_norm_forward(ctx, mid_normed, tape.x_mid, tape.x, o, w.post_attention_norm,
                            w.mlp_norm, static_cast<float>(spec_.rms_norm_eps));
}

void Transformer::project_up(const ops::Context& ctx, const LayerParameters& w,
                             const LayerTape& tape, Tensor mid_normed) const {
  if (tape.gate_up.defined()) {
    ops::matmul_forward(ctx, tape.gate_up, mid_normed, w.gate_up_weight, w.gate_up_bias);
  } else {
    ops::matmul_swiglu_forward(ctx, tape.h, mid_normed, w.gate_up_weight, w.gate_up_bias);
  }
}

void Transformer::add_mlp(const ops::Context& ctx, const LayerParameters& w, const LayerTape& tape,
                          Tensor x_out, Tensor next_norm, Tensor normed) const {
  ArenaScope scope(ctx.arena);
  const int64_t tokens = tape.x_mid.dim(0);
  const DType dtype = tape.x_mid.dtype();
  Tensor h = tape.h;
  if (tape.gate_up.defined()) {
    h = ctx.arena.allocate(dtype, {tokens, spec_.intermediate_size});
    ops::swiglu_forward(ctx, h, tape.gate_up);
  }
  const Tensor down =
      spec_.sandwich_norms ? tape.down_raw : ctx.arena.allocate(dtype, {tokens, spec_.hidden_size});
  ops::matmul_forward(ctx, down, h, w.down_weight, w.down_bias);
  ops::add_rms_norm_forward(ctx, next_norm.defined() ? normed : Tensor{}, x_out, tape.x_mid, down,
                            w.post_mlp_norm, next_norm, static_cast<float>(spec_.rms_norm_eps));
}

Tensor Transformer::forward(const ops::Context& ctx, const ModelParameters& weights,
                            const Batch& batch, Tape* tape) const {
  const int64_t tokens = batch.tokens.dim(0);
  const auto hidden = [&] {
    return ctx.arena.allocate(tensor::compute_dtype(ctx.arena.device()),
                              {tokens, spec_.hidden_size});
  };
  const Tensor x_out = hidden();
  if (tape != nullptr) tape->layers.clear();
  Tensor x = tape != nullptr ? hidden() : x_out;
  const Tensor normed = hidden();
  ops::embedding_forward(ctx, x, weights.embedding, batch.tokens);
  ops::rms_norm_forward(ctx, normed, x, weights.layers[0].input_norm,
                        static_cast<float>(spec_.rms_norm_eps));
  for (int64_t layer = 0; layer < spec_.num_layers; ++layer) {
    // The layer's output is the next one's input: kept apart if this input is on the tape.
    const bool is_last = layer + 1 == spec_.num_layers;
    const Tensor next = tape == nullptr || is_last ? x_out : hidden();
    const LayerParameters& w = weights.layers[static_cast<size_t>(layer)];
    Arena::Mark mark = ctx.arena.mark();
    LayerTape kept{.x = x};
    if (tape != nullptr) {
      allocate_kept(ctx.arena, spec_, tokens, tape->keep.of(layer), kept);
      mark = ctx.arena.mark();
    }
    LayerTape layer_tape = kept;
    allocate_rest(ctx.arena, spec_, tokens, false, layer_tape);
    project_qkv(ctx, w, batch, layer, layer_tape, normed);
    attend(ctx, batch, layer, layer_tape);
    add_attention(ctx, w, layer_tape, normed, false);
    project_up(ctx, w, layer_tape, normed);
    add_mlp(ctx, w, layer_tape, next,
            is_last ? Tensor{} : weights.layers[static_cast<size_t>(layer) + 1].input_norm, normed);
    ctx.arena.release_to(mark);
    if (tape != nullptr) tape->layers.push_back(kept);
    x = next;
  }
  return x_out;
}

}  // namespace slimexx::model
