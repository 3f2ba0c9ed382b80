// The steps of a layer that decoder.cpp runs. Legend as in layer.h; with tensor parallelism tensors
// [T,H] hold this rank's rows of the residual stream.
#pragma once
#include <functional>

#include "slimexx/model/layer.h"
#include "slimexx/ops/context.h"

namespace slimexx::model {

// Where a layer runs.
struct LayerPlace {
  const ModelSpec& model;
  const LayerSpec& spec;
  const ops::RotaryTable& rotary;
  const Batch& batch;
  LayerPages pages;           // undefined: packed
  RouterBalance router = {};  // of backward
};

KeyChoice key_choice(const LayerSpec& spec);

// [T,k] i32 for a layer that selects keys: as many as a query may see. `reused` where it is defined
// and as wide.
Tensor allocate_selection(const ops::Context& ctx, const LayerPlace& place, Tensor reused = {});

// A tape of the layer's blocks that holds its input alone: x, and where queries see a selection of
// keys, the place for it or the one that the layer shares.
LayerTape empty_tape(const LayerSpec& spec, const LayerInput& input);

// Allocates what `level` keeps of a layer, but x.
void allocate_kept(Arena& arena, const ModelSpec& model, const LayerSpec& spec,
                   const RowCounts& rows, LayerKeep level, LayerTape& tape);

// `kept` holds the layer's input x [T,H] and what is allocated to be kept; `normed` [T,H] is the
// norm of x. Writes output.x and, where next_norm [H] is defined, output.normed, its norm by that.
// output.normed may be `normed`.
void layer_forward(const ops::Context& ctx, const LayerPlace& place,
                   const LayerParameters<Tensor>& w, const LayerTape& kept, Tensor normed,
                   const LayerInput& output, Tensor next_norm);

// Fills the tape again from what was kept: all but the layer's output, which backward does not
// read. The norms and h that this makes on the way stay for backward.
void recompute_layer(const ops::Context& ctx, const LayerPlace& place,
                     const LayerParameters<Tensor>& w, LayerTape& tape);

// dx[T,H] enters as the gradient of the layer's output and leaves as that of its input.
void layer_backward(const ops::Context& ctx, const LayerPlace& place,
                    const LayerParameters<Tensor>& w, const LayerParameters<Tensor>& g,
                    const LayerTape& tape, Tensor dx, bool accumulate,
                    const std::function<void()>& attention_next);

}  // namespace slimexx::model
