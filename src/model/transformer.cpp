#include "slimexx/model/transformer.h"

#include <fmt/format.h>

#include <cmath>

#include "layer_views.h"
#include "rotary_table.h"
#include "slimexx/base/check.h"

namespace slimexx::model {
namespace {

using tensor::ArenaScope;
using tensor::DType;

using Lookup = Tensor (ParameterStore::*)(const std::string&) const;

ModelParameters bind(const ParameterStore& store, const ModelSpec& spec, Lookup lookup) {
  const auto get = [&](const std::string& name) {
    return store.contains(name) ? (store.*lookup)(name) : Tensor{};
  };
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

ModelParameters bind_gradients(const ParameterStore& store, const ModelSpec& spec) {
  return bind(store, spec, &ParameterStore::gradient);
}

Transformer::Transformer(const ModelSpec& spec, tensor::Device device, int64_t max_positions)
    : spec_(spec), max_positions_(max_positions) {
  const int64_t half = spec.rope.rotary_dim / 2;
  rotary_buffer_ = tensor::Buffer(device, 2 * max_positions * half * 4, "rotary tables");
  cos_ = rotary_buffer_.view(DType::kF32, {max_positions, half});
  sin_ = rotary_buffer_.view(DType::kF32, {max_positions, half}, max_positions * half * 4);
  fill_rotary_tables(spec.rope, cos_, sin_);
}

LayerTape allocate_layer_tape(Arena& arena, const ModelSpec& spec, int64_t num_tokens) {
  const auto rows = [&](int64_t width) { return arena.allocate(DType::kF32, {num_tokens, width}); };
  LayerTape tape;
  if (spec.qk_norm) tape.qkv_raw = rows(spec.qkv_size());
  tape.qkv = rows(spec.qkv_size());
  tape.attention = rows(spec.q_size());
  tape.lse = rows(spec.num_heads);
  if (spec.sandwich_norms) tape.o_raw = rows(spec.hidden_size);
  tape.x_mid = rows(spec.hidden_size);
  tape.gate_up = rows(2 * spec.intermediate_size);
  if (spec.sandwich_norms) tape.down_raw = rows(spec.hidden_size);
  return tape;
}

// Legend as in transformer.h. Pre-norm block, with the sandwich norms of GLM-4-0414 where the spec
// has them:
//   a = o(attention(qkv(norm(x))));  x_mid = x + [norm](a)
//   m = down(swiglu(gate_up(norm(x_mid))));  x_out = x_mid + [norm](m)
void Transformer::layer_forward(Stream stream, Arena& arena, const LayerParameters& w,
                                const Batch& batch, int64_t layer, LayerTape& tape,
                                Tensor x_out) const {
  const int64_t tokens = tape.x.dim(0);
  const auto eps = static_cast<float>(spec_.rms_norm_eps);
  ArenaScope scope(arena);
  const Tensor branch = arena.allocate(DType::kF32, {tokens, spec_.hidden_size});

  ops::rms_norm_forward(stream, branch, tape.x, w.input_norm, eps);
  const Tensor projected = spec_.qk_norm ? tape.qkv_raw : tape.qkv;
  ops::matmul_forward(stream, projected, branch, w.qkv_weight, w.qkv_bias);
  const QkvViews raw = split_qkv(projected, spec_), qkv = split_qkv(tape.qkv, spec_);
  if (spec_.qk_norm) {
    ops::head_norm_forward(stream, qkv.q, raw.q, w.q_norm, eps);
    ops::head_norm_forward(stream, qkv.k, raw.k, w.k_norm, eps);
    const int64_t qk = spec_.q_size() + spec_.kv_size();
    ops::copy_rows(stream, tape.qkv.columns(qk, spec_.qkv_size()),
                   projected.columns(qk, spec_.qkv_size()));
  }
  ops::rotary(stream, qkv.q, cos_, sin_, batch.positions, spec_.rope.style, false);
  ops::rotary(stream, qkv.k, cos_, sin_, batch.positions, spec_.rope.style, false);

  const Tensor attention = view_heads(tape.attention, spec_.num_heads, spec_.head_dim);
  Tensor keys = qkv.k, values = qkv.v;
  if (!batch.pages.empty()) {
    const LayerPages& pages = batch.pages[static_cast<size_t>(layer)];
    ops::write_kv_pages(stream, pages.k, pages.v, qkv.k, qkv.v, batch.slots);
    keys = pages.k;
    values = pages.v;
  }
  ops::attention_forward(stream, attention, tape.lse, qkv.q, keys, values, batch.attention,
                         attention_scale(spec_));

  const Tensor o = spec_.sandwich_norms ? tape.o_raw : branch;
  ops::matmul_forward(stream, o, tape.attention, w.o_weight, w.o_bias);
  if (spec_.sandwich_norms) ops::rms_norm_forward(stream, branch, o, w.post_attention_norm, eps);
  ops::add(stream, tape.x_mid, tape.x, branch);

  ops::rms_norm_forward(stream, branch, tape.x_mid, w.mlp_norm, eps);
  ops::matmul_forward(stream, tape.gate_up, branch, w.gate_up_weight, w.gate_up_bias);
  const Tensor h = arena.allocate(DType::kF32, {tokens, spec_.intermediate_size});
  ops::swiglu_forward(stream, h, tape.gate_up);
  const Tensor down = spec_.sandwich_norms ? tape.down_raw : branch;
  ops::matmul_forward(stream, down, h, w.down_weight, w.down_bias);
  if (spec_.sandwich_norms) ops::rms_norm_forward(stream, branch, down, w.post_mlp_norm, eps);
  ops::add(stream, x_out, tape.x_mid, branch);
}

Tensor Transformer::forward(Stream stream, Arena& arena, const ModelParameters& weights,
                            const Batch& batch, Tape* tape) const {
  const int64_t tokens = batch.tokens.dim(0);
  const Tensor x_out = arena.allocate(DType::kF32, {tokens, spec_.hidden_size});
  if (tape != nullptr) tape->layers.clear();
  Tensor x = x_out;
  if (tape != nullptr) x = arena.allocate(DType::kF32, {tokens, spec_.hidden_size});
  ops::embedding_forward(stream, x, weights.embedding, batch.tokens);
  for (int64_t layer = 0; layer < spec_.num_layers; ++layer) {
    const bool keep_all = tape != nullptr && tape->recompute == Recompute::kNone;
    // The layer's output is the next one's input: kept apart if this input is on the tape.
    const bool is_last = layer + 1 == spec_.num_layers;
    const Tensor next = tape == nullptr || is_last
                            ? x_out
                            : arena.allocate(DType::kF32, {tokens, spec_.hidden_size});
    const Arena::Mark mark = arena.mark();
    LayerTape layer_tape = allocate_layer_tape(arena, spec_, tokens);
    layer_tape.x = x;
    layer_forward(stream, arena, weights.layers[static_cast<size_t>(layer)], batch, layer,
                  layer_tape, next);
    if (!keep_all) {
      layer_tape = LayerTape{.x = x};
      arena.release_to(mark);
    }
    if (tape != nullptr) tape->layers.push_back(layer_tape);
    x = next;
  }
  return x_out;
}

}  // namespace slimexx::model
