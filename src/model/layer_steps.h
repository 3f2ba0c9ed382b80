// The steps of a layer that decoder.cpp runs. Legend as in layer.h. With tensor parallelism tensors
// [T,H] hold this rank's rows of the residual stream.
#pragma once
#include <functional>

#include "slimexx/model/layer.h"
#include "slimexx/ops/context.h"

namespace slimexx::model {

// The inputs of a layer's run: specs, batch, pages.
struct LayerPlace {
  const ModelSpec& model;
  const LayerSpec& spec;
  const ops::RotaryTable& rotary;
  const Batch& batch;
  LayerPages pages;           // undefined: packed
  RouterBalance router = {};  // only for backward
};

KeyChoice key_choice(const LayerSpec& spec);

// [T,k] i32 for a layer that selects keys; k is top_k, or the longest sequence if that is shorter.
// Returns `reused` if it is defined and has that width.
Tensor allocate_selection(const ops::Context& ctx, const LayerPlace& place, Tensor reused = {});

// A tape that holds only the layer's input: x, and for sparse attention the selection, which the
// layer writes or shares.
LayerTape empty_tape(const LayerSpec& spec, const LayerInput& input);

// Allocates the tensors that `level` keeps of a layer, except x.
void allocate_kept(Arena& arena, const ModelSpec& model, const LayerSpec& spec,
                   const RowCounts& rows, LayerKeep level, LayerTape& tape);

// `kept` holds the layer's input x [T,H] and the allocated tensors to keep. `normed` [T,H] is the
// norm of x. Writes output.x and, if next_norm [H] is defined, output.normed, the norm of output.x
// with these weights. output.normed may be `normed`.
void layer_forward(const ops::Context& ctx, const LayerPlace& place,
                   const LayerParameters<Tensor>& w, const LayerTape& kept, Tensor normed,
                   const LayerInput& output, Tensor next_norm);

// Recomputes from the kept tensors everything on the tape that backward reads; this excludes the
// layer's output. Norms and h that are computed on the way stay on the tape.
void recompute_layer(const ops::Context& ctx, const LayerPlace& place,
                     const LayerParameters<Tensor>& w, LayerTape& tape);

// In place: dx[T,H] is the gradient of the layer's output on entry and of its input on return.
void layer_backward(const ops::Context& ctx, const LayerPlace& place,
                    const LayerParameters<Tensor>& w, const LayerParameters<Tensor>& g,
                    const LayerTape& tape, Tensor dx, bool accumulate,
                    const std::function<void()>& attention_next);

}  // namespace slimexx::model
