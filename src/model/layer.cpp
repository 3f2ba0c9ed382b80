#include "slimexx/model/layer.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/layer_steps.h"
#include "model/of_kind.h"
#include "model/weights/parameter_list.h"
#include "slimexx/ops/norm.h"
#include "slimexx/ops/sparse_attention.h"

namespace slimexx::model {
namespace {

using tensor::ArenaScope;

float norm_eps(const LayerPlace& place) { return static_cast<float>(place.model.rms_norm_eps); }

RowCounts count_rows(const LayerPlace& place, const LayerTape& tape) {
  return {tape.x.dim(0), place.batch.tokens.dim(0)};
}

Tensor allocate_hidden(Arena& arena, const ModelSpec& model, int64_t num_tokens) {
  return arena.allocate(tensor::compute_dtype(arena.device()), {num_tokens, model.hidden_size});
}

// Allocates the tensors that the layer's steps write and `tape` does not hold yet. With
// `for_backward`, also the tensors that backward reads.
void allocate_rest(Arena& arena, const LayerPlace& place, bool for_backward, LayerTape& tape) {
  const RowCounts rows = count_rows(place, tape);
  const auto add_hidden = [&](Tensor& t) {
    if (!t.defined()) t = allocate_hidden(arena, place.model, rows.own);
  };
  const auto rest_of_attention = [&](const auto& spec) {
    allocate_rest(arena, spec, rows, tape_of_kind(spec, tape.attention));
  };
  const auto rest_of_mlp = [&](const auto& spec) {
    allocate_rest(arena, spec, rows, for_backward, tape_of_kind(spec, tape.mlp));
  };
  std::visit(rest_of_attention, place.spec.attention);
  if (place.spec.sandwich_norms) add_hidden(tape.o_raw);
  add_hidden(tape.x_mid);
  std::visit(rest_of_mlp, place.spec.mlp);
  if (place.spec.sandwich_norms) add_hidden(tape.down_raw);
}

void project_qkv(const ops::Context& ctx, const LayerPlace& place, const LayerParameters<Tensor>& w,
                 const LayerTape& tape, Tensor normed) {
  const auto project = [&](const auto& spec) {
    project_qkv(ctx, spec, of_kind<Tensor>(spec, w.attention), place.rotary, place.batch,
                place.pages, tape_of_kind(spec, tape.attention), normed);
  };
  std::visit(project, place.spec.attention);
}

// Fills tape.selected if the layer selects keys. Recompute does not call this: the tape keeps the
// selection.
void select_keys(const ops::Context& ctx, const LayerPlace& place, const LayerParameters<Tensor>& w,
                 const LayerTape& tape, Tensor normed) {
  const auto select = [&](const auto& spec) {
    select_keys(ctx, spec, of_kind<Tensor>(spec, w.attention), place.rotary, place.batch,
                place.pages, tape_of_kind(spec, tape.attention), normed, tape.selected);
  };
  if (key_choice(place.spec).selects) std::visit(select, place.spec.attention);
}

// The batch with the selection of keys that this layer's queries see.
Batch seen_batch(const LayerPlace& place, const LayerTape& tape) {
  Batch batch = place.batch;
  batch.attention.selected = tape.selected;
  return batch;
}

void attend(const ops::Context& ctx, const LayerPlace& place, const LayerParameters<Tensor>& w,
            const LayerTape& tape) {
  const Batch batch = seen_batch(place, tape);
  const auto attend_in = [&](const auto& spec) {
    attend(ctx, spec, of_kind<Tensor>(spec, w.attention), place.rotary, batch, place.pages,
           tape_of_kind(spec, tape.attention));
  };
  std::visit(attend_in, place.spec.attention);
}

// Computes o (unless the tape kept it: `has_o`), x_mid, and x_mid's norm `mid_normed`.
void add_attention(const ops::Context& ctx, const LayerPlace& place,
                   const LayerParameters<Tensor>& w, const LayerTape& tape, Tensor mid_normed,
                   bool has_o) {
  const ArenaScope scope(ctx.arena);
  const Tensor o = place.spec.sandwich_norms
                       ? tape.o_raw
                       : allocate_hidden(ctx.arena, place.model, tape.x.dim(0));
  const auto project = [&](const auto& spec) {
    project_out(ctx, spec, of_kind<Tensor>(spec, w.attention), place.batch,
                tape_of_kind(spec, tape.attention), o);
  };
  if (!has_o) std::visit(project, place.spec.attention);
  ops::add_rms_norm_forward(ctx, mid_normed, tape.x_mid, tape.x, o, w.post_attention_norm,
                            w.mlp_norm, norm_eps(place));
}

void project_up(const ops::Context& ctx, const LayerPlace& place, const LayerParameters<Tensor>& w,
                const LayerTape& tape, Tensor mid_normed) {
  const auto project = [&](const auto& spec) {
    project_up(ctx, spec, of_kind<Tensor>(spec, w.mlp), place.batch, tape_of_kind(spec, tape.mlp),
               mid_normed);
  };
  std::visit(project, place.spec.mlp);
}

// `down`: the output tensor, or the residual stream to add the output to.
template <class Down>
void project_down(const ops::Context& ctx, const LayerPlace& place,
                  const LayerParameters<Tensor>& w, const LayerTape& tape, const Down& down) {
  const auto project = [&](const auto& spec) {
    project_down(ctx, spec, of_kind<Tensor>(spec, w.mlp), place.batch, tape_of_kind(spec, tape.mlp),
                 down);
  };
  std::visit(project, place.spec.mlp);
}

// Returns `kept` if it is defined, otherwise the norm of x.
Tensor norm_unless_kept(const ops::Context& ctx, const LayerPlace& place, Tensor kept, Tensor x,
                        Tensor w) {
  if (kept.defined()) return kept;
  const Tensor normed = allocate_hidden(ctx.arena, place.model, x.dim(0));
  ops::rms_norm_forward(ctx, normed, x, w, norm_eps(place));
  return normed;
}

// The gradient of a branch's output before its sandwich norm with weights `w` [H]. Without sandwich
// norms this is dx.
Tensor branch_gradient(const ops::Context& ctx, const LayerPlace& place, Tensor dx, Tensor raw,
                       Tensor w, Tensor dw) {
  if (!place.spec.sandwich_norms) return dx;
  const Tensor draw = allocate_hidden(ctx.arena, place.model, dx.dim(0));
  ops::rms_norm_backward(ctx, draw, dw, dx, raw, w, norm_eps(place), false);
  return draw;
}

// In place: dx is the gradient of the layer's output on entry and of x_mid on return.
void mlp_backward(const ops::Context& ctx, const LayerPlace& place,
                  const LayerParameters<Tensor>& w, const LayerParameters<Tensor>& g,
                  const LayerTape& tape, Tensor dx, bool accumulate) {
  const ArenaScope scope(ctx.arena);
  const Tensor ddown =
      branch_gradient(ctx, place, dx, tape.down_raw, w.post_mlp_norm, g.post_mlp_norm);
  const Tensor normed = norm_unless_kept(ctx, place, tape.mid_normed, tape.x_mid, w.mlp_norm);
  const Tensor dnormed = allocate_hidden(ctx.arena, place.model, dx.dim(0));
  const auto backward_of = [&](const auto& spec) {
    backward(ctx, spec, of_kind<Tensor>(spec, w.mlp), of_kind<Tensor>(spec, g.mlp), place.batch,
             tape_of_kind(spec, tape.mlp), ddown, normed, dnormed, accumulate, place.router);
  };
  std::visit(backward_of, place.spec.mlp);
  ops::rms_norm_backward(ctx, dx, g.mlp_norm, dnormed, tape.x_mid, w.mlp_norm, norm_eps(place),
                         true);
}

// In place: dx is the gradient of x_mid on entry and of the layer's input on return.
void attention_backward(const ops::Context& ctx, const LayerPlace& place,
                        const LayerParameters<Tensor>& w, const LayerParameters<Tensor>& g,
                        const LayerTape& tape, Tensor dx, bool accumulate,
                        const std::function<void()>& attention_next) {
  const ArenaScope scope(ctx.arena);
  const Tensor dout =
      branch_gradient(ctx, place, dx, tape.o_raw, w.post_attention_norm, g.post_attention_norm);
  const Tensor normed = norm_unless_kept(ctx, place, tape.normed, tape.x, w.input_norm);
  const Tensor dnormed = allocate_hidden(ctx.arena, place.model, dx.dim(0));
  const Batch batch = seen_batch(place, tape);
  const auto backward_of = [&](const auto& spec) {
    backward(ctx, spec, of_kind<Tensor>(spec, w.attention), of_kind<Tensor>(spec, g.attention),
             place.rotary, batch, tape_of_kind(spec, tape.attention), dout, normed, dnormed,
             accumulate, attention_next);
  };
  std::visit(backward_of, place.spec.attention);
  ops::rms_norm_backward(ctx, dx, g.input_norm, dnormed, tape.x, w.input_norm, norm_eps(place),
                         true);
}

}  // namespace

LayerParameters<ParameterId> declare(ParameterList& list, const ModelSpec& spec, const LayerSpec& s,
                                     int64_t index) {
  const std::string own = fmt::format("layers.{}.", index);
  const std::string hf = fmt::format("model.layers.{}.", index);
  LayerParameters<ParameterId> p;
  p.input_norm =
      list.add_norm(own + "input_norm.weight", hf + "input_layernorm.weight", spec.hidden_size);
  std::visit([&](const auto& block) { p.attention = declare(list, block, own, hf); }, s.attention);
  p.post_attention_norm =
      list.add_norm_if(s.sandwich_norms, own + "post_attention_norm.weight",
                       hf + "post_self_attn_layernorm.weight", spec.hidden_size);
  // All model families name the norm before the MLP `post_attention_layernorm`.
  p.mlp_norm = list.add_norm(own + "mlp_norm.weight", hf + "post_attention_layernorm.weight",
                             spec.hidden_size);
  std::visit([&](const auto& block) { p.mlp = declare(list, block, own, hf); }, s.mlp);
  p.post_mlp_norm = list.add_norm_if(s.sandwich_norms, own + "post_mlp_norm.weight",
                                     hf + "post_mlp_layernorm.weight", spec.hidden_size);
  return p;
}

KeyChoice key_choice(const LayerSpec& spec) {
  return std::visit([](const auto& block) { return key_choice(block); }, spec.attention);
}

Tensor allocate_selection(const ops::Context& ctx, const LayerPlace& place, Tensor reused) {
  const int64_t num_tokens = place.batch.tokens.dim(0);
  const int64_t keys = ops::max_sequence_keys(place.batch.attention, num_tokens);
  const int64_t k = std::clamp<int64_t>(keys, 1, key_choice(place.spec).top_k);
  if (reused.defined() && reused.dim(1) == k) return reused;
  return ctx.arena.allocate(DType::kI32, {num_tokens, k});
}

LayerTape empty_tape(const LayerSpec& spec, const LayerInput& input) {
  LayerTape tape{.x = input.x};
  if (key_choice(spec).top_k > 0) tape.selected = input.selected;
  std::visit([&](const auto& s) { tape.attention = typename std::decay_t<decltype(s)>::Tape{}; },
             spec.attention);
  std::visit([&](const auto& s) { tape.mlp = typename std::decay_t<decltype(s)>::Tape{}; },
             spec.mlp);
  return tape;
}

void allocate_kept(Arena& arena, const ModelSpec& model, const LayerSpec& spec,
                   const RowCounts& rows, LayerKeep level, LayerTape& tape) {
  const auto kept_of_attention = [&](const auto& block) {
    allocate_kept(arena, block, rows, level, tape_of_kind(block, tape.attention));
  };
  const auto kept_of_mlp = [&](const auto& block) {
    allocate_kept(arena, block, rows, level, tape_of_kind(block, tape.mlp));
  };
  std::visit(kept_of_attention, spec.attention);
  std::visit(kept_of_mlp, spec.mlp);
  if (!spec.sandwich_norms || level == LayerKeep::kAll)
    tape.x_mid = allocate_hidden(arena, model, rows.own);
  if (spec.sandwich_norms && level >= LayerKeep::kNormInputs) {
    tape.o_raw = allocate_hidden(arena, model, rows.own);
    tape.down_raw = allocate_hidden(arena, model, rows.own);
  }
}

int64_t layer_tape_bytes(const ModelSpec& spec, int64_t layer, tensor::Device device,
                         const RowCounts& rows, LayerKeep level) {
  Arena plan = Arena::for_planning(device, "layer tape");
  LayerTape tape = empty_tape(spec.layer(layer), {});
  allocate_kept(plan, spec, spec.layer(layer), rows, level, tape);
  return plan.used_bytes();
}

void layer_forward(const ops::Context& ctx, const LayerPlace& place,
                   const LayerParameters<Tensor>& w, const LayerTape& kept, Tensor normed,
                   const LayerInput& output, Tensor next_norm) {
  const ArenaScope scope(ctx.arena);
  LayerTape tape = kept;
  allocate_rest(ctx.arena, place, false, tape);
  project_qkv(ctx, place, w, tape, normed);
  select_keys(ctx, place, w, tape, normed);
  attend(ctx, place, w, tape);
  add_attention(ctx, place, w, tape, normed, false);
  project_up(ctx, place, w, tape, normed);
  const Tensor out_normed = next_norm.defined() ? output.normed : Tensor{};
  if (!place.spec.sandwich_norms)
    return project_down(
        ctx, place, w, tape,
        ops::ResidualNorm{out_normed, output.x, tape.x_mid, next_norm, norm_eps(place)});
  project_down(ctx, place, w, tape, tape.down_raw);
  ops::add_rms_norm_forward(ctx, out_normed, output.x, tape.x_mid, tape.down_raw, w.post_mlp_norm,
                            next_norm, norm_eps(place));
}

void recompute_layer(const ops::Context& ctx, const LayerPlace& place,
                     const LayerParameters<Tensor>& w, LayerTape& tape) {
  const LayerTape kept = tape;
  const int64_t tokens = tape.x.dim(0);
  allocate_rest(ctx.arena, place, true, tape);
  const bool has_qkv =
      std::visit([&](const auto& spec) { return keeps_qkv(tape_of_kind(spec, kept.attention)); },
                 place.spec.attention);
  const bool has_up = std::visit(
      [&](const auto& spec) { return keeps_up(tape_of_kind(spec, kept.mlp)); }, place.spec.mlp);
  if (!has_qkv) {
    tape.normed = norm_unless_kept(ctx, place, {}, tape.x, w.input_norm);
    project_qkv(ctx, place, w, tape, tape.normed);
  }
  if (!kept.x_mid.defined()) {
    tape.mid_normed = allocate_hidden(ctx.arena, place.model, tokens);
    add_attention(ctx, place, w, tape, tape.mid_normed, kept.o_raw.defined());
  }
  if (!has_up) {
    tape.mid_normed = norm_unless_kept(ctx, place, tape.mid_normed, tape.x_mid, w.mlp_norm);
    project_up(ctx, place, w, tape, tape.mid_normed);
  }
  if (place.spec.sandwich_norms && !kept.down_raw.defined()) {
    std::visit(
        [&](const auto& spec) {
          keep_down_input(ctx.arena, spec, count_rows(place, tape), tape_of_kind(spec, tape.mlp));
        },
        place.spec.mlp);
    project_down(ctx, place, w, tape, tape.down_raw);
  }
}

void layer_backward(const ops::Context& ctx, const LayerPlace& place,
                    const LayerParameters<Tensor>& w, const LayerParameters<Tensor>& g,
                    const LayerTape& tape, Tensor dx, bool accumulate,
                    const std::function<void()>& attention_next) {
  mlp_backward(ctx, place, w, g, tape, dx, accumulate);
  attention_backward(ctx, place, w, g, tape, dx, accumulate, attention_next);
}

}  // namespace slimexx::model
