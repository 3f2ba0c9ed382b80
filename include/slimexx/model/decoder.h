// The decoder: one forward for training, prefill and decode, and its backward, driven by ModelSpec:
// the loop over the layers of a stage, the residual stream, and what one layer hands the next.
// Training keeps what backward needs on a tape; generation keeps nothing and writes keys and values
// to pages. All memory comes from the context's arena; in a planning context the same calls measure
// it.
//
// Legend: T packed tokens, H hidden size.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "slimexx/model/layer.h"
#include "slimexx/model/layer_keep.h"
#include "slimexx/model/mtp.h"
#include "slimexx/model/parameters.h"
#include "slimexx/model/spec.h"
#include "slimexx/ops/context.h"

namespace slimexx::model {

struct Tape {
  KeepPlan keep = {};
  std::vector<LayerTape> layers = {};  // of the stage
};

// The plan that keeps the most in `bytes` more than kInputs takes for every layer: all layers are
// raised by a level before the first is raised by another, since lower levels save more time a byte
// (the bytes a level adds to a layer save 2 T H F multiply-adds in T F elements).
KeepPlan choose_keep(const ModelSpec& spec, const StageRange& stage, tensor::Device device,
                     const RowCounts& rows, int64_t bytes);

template <class T>
struct StageParameters {
  T embedding = {};
  std::vector<LayerParameters<T>> layers = {};  // of the stage
  HeadParameters<T> head = {};
  std::vector<MtpParameters<T>> mtp = {};  // where the stage has the head
};
using ModelParameters = StageParameters<Tensor>;
// Views of a store's weights and of its gradients; the store holds the whole of `stage`, and maybe
// more.
ModelParameters bind_weights(const ParameterStore& store, const ModelSpec& spec);
ModelParameters bind_gradients(const ParameterStore& store, const ModelSpec& spec);
ModelParameters bind_weights(const ParameterStore& store, const ModelSpec& spec,
                             const StageRange& stage);
ModelParameters bind_gradients(const ParameterStore& store, const ModelSpec& spec,
                               const StageRange& stage);

// What backward calls as it queues its work. Both may be empty. Layers count in the whole model.
struct BackwardHooks {
  // All that adds to a layer's gradients is queued: from the last layer to the first. The
  // embedding's follow after that.
  std::function<void(int64_t layer)> layer_done = {};
  // A layer's attention is one product away. Work that waits on another stream for the work queued
  // so far gets its multiprocessors as that product ends: attention then shares its work over the
  // rest as they come free, whereas a product assigns every multiprocessor its tiles beforehand and
  // would take longer by the time that one of them comes late.
  std::function<void(int64_t layer)> attention_next = {};
};

// What backward adds up of the routers, and the losses that keep their experts even. MTP layers
// have no part in either.
struct RouterBalances {
  std::vector<Tensor> sums =
      {};  // by layer of the whole model [2E+2] i64; undefined without experts
  ops::RouterBalanceRule rule = {};
};

class Decoder {
 public:
  // The whole model. Rotary tables cover positions [0, max_positions).
  Decoder(const ModelSpec& spec, tensor::Device device, int64_t max_positions);
  // A stage of it, and of its layers the shard of a rank of a grid of these sizes. `leaves` are
  // those of row-parallel products and of the vocabulary (numerics contract, N6): as many as tp
  // ranks, or where tp is 1 any number that divides the sizes; 0: one a tp rank. Throws
  // Error(kUsage) for what does not divide.
  Decoder(const ModelSpec& spec, tensor::Device device, int64_t max_positions,
          const StageRange& stage, const dist::GridSizes& sizes = {}, int64_t leaves = 0);
  const ModelSpec& spec() const { return spec_; }  // of the whole model
  // Layers, MTP layers and head of this rank's shard.
  const ModelSpec& local_spec() const { return local_spec_; }
  const StageRange& stage() const { return stage_; }
  int64_t max_positions() const { return max_positions_; }

  // All residual streams are this rank's rows of them (Batch::tp_rows).
  //
  // The residual stream after the stage's last layer, before the final norm, [T,H], allocated from
  // the context's arena. With a tape, so is the tape; without, layer scratch is released as it
  // goes. A tape serves one backward. `input` [T,H] is the residual stream of the stage before,
  // which must stay until backward; undefined where the stage has the embedding.
  Tensor forward(const ops::Context& ctx, const ModelParameters& weights, const Batch& batch,
                 Tape* tape, Tensor input = {}) const;

  // dx[T,H] enters as the gradient of forward's result and leaves as that of the stage's input.
  // Vectors' gradients, and the embedding's, are added to; matrices' are as `accumulate` says added
  // to, or else written, whatever they hold (ParameterInfo::zero_before_backward).
  void backward(const ops::Context& ctx, const ModelParameters& weights,
                const ModelParameters& gradients, const Batch& batch, const Tape& tape, Tensor dx,
                bool accumulate, const BackwardHooks& hooks = {},
                const RouterBalances& routers = {}) const;

  // MTP layer `index` on a stage with the head, and the embedding or a copy of it. `batch` has each
  // sequence's tokens rolled left by index + 1. `hidden` [T,H] is the model's output behind its
  // final norm, or that of the MTP layer before behind its own; it must stay until backward. Gives
  // y [T,H] (mtp.h), and all that backward needs, from the context's arena.
  Tensor mtp_forward(const ops::Context& ctx, const ModelParameters& weights, size_t index,
                     const Batch& batch, Tensor hidden, MtpTape& tape) const;
  // The same y where nothing is kept for backward; `pages` hold the layer's keys and values.
  Tensor mtp_step(const ops::Context& ctx, const ModelParameters& weights, size_t index,
                  const Batch& batch, Tensor hidden, const LayerPages& pages) const;
  // dx[T,H] enters as the gradient of y and leaves as that of `hidden`. The embedding counts as
  // constant. Gradients are added to or written as in backward.
  void mtp_backward(const ops::Context& ctx, const ModelParameters& weights,
                    const ModelParameters& gradients, size_t index, const Batch& batch,
                    const MtpTape& tape, Tensor dx, bool accumulate) const;

 private:
  ops::RotaryTable rotary_table() const { return {cos_, sin_, spec_.rope.style}; }

  ModelSpec spec_, local_spec_;
  StageRange stage_;
  int64_t max_positions_;
  tensor::Buffer rotary_buffer_;
  Tensor cos_, sin_;  // [max_positions, rotary_dim/2]
};

}  // namespace slimexx::model
