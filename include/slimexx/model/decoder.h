// The decoder: one forward for training, prefill and decode, and its backward, driven by ModelSpec.
// It owns the loop over the layers of a stage, the residual stream, and LayerInput.
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

// Chooses the plan that keeps the most within `bytes` in addition to kInputs for every layer. No
// layer goes a level higher before all layers have reached the level, since lower levels save more
// time per byte (a level keeps T F elements of a layer and saves 2 T H F multiply-adds).
KeepPlan choose_keep(const ModelSpec& spec, const StageRange& stage, tensor::Device device,
                     const RowCounts& rows, int64_t bytes);

template <class T>
struct StageParameters {
  T embedding = {};
  std::vector<LayerParameters<T>> layers = {};  // of the stage
  HeadParameters<T> head = {};
  std::vector<MtpParameters<T>> mtp = {};  // only if the stage has the head
};
using ModelParameters = StageParameters<Tensor>;
// Views of a store's weights and gradients. The store must hold all of `stage` and may hold more.
// Products read the plain weights if spec.encoding is_for_engines (encoding.h).
ModelParameters bind_weights(const ParameterStore& store, const ModelSpec& spec);
ModelParameters bind_gradients(const ParameterStore& store, const ModelSpec& spec);
ModelParameters bind_weights(const ParameterStore& store, const ModelSpec& spec,
                             const StageRange& stage);
ModelParameters bind_gradients(const ParameterStore& store, const ModelSpec& spec,
                               const StageRange& stage);

// Callbacks that backward runs while it queues its work. Both may be empty. Layer indices count in
// the whole model.
struct BackwardHooks {
  // Called when all work that adds to this layer's gradients is queued, from the last layer to the
  // first. The embedding's gradient comes after all layers.
  std::function<void(int64_t layer)> layer_done = {};
  // Called one product before a layer's attention. Work that another stream starts after the work
  // queued so far gets its SMs when that product ends. Attention then distributes its tiles over
  // the remaining SMs as they become free. A product assigns tiles to SMs in advance, so one late
  // SM would delay all of it.
  std::function<void(int64_t layer)> attention_next = {};
};

// Router statistics that backward accumulates, and the load-balancing losses. MTP layers have
// neither.
struct RouterBalances {
  std::vector<Tensor> sums =
      {};  // by layer of the whole model: [2E+2] i64, undefined without experts
  ops::RouterBalanceRule rule = {};
};

class Decoder {
 public:
  // The whole model. Rotary tables cover positions [0, max_positions).
  Decoder(const ModelSpec& spec, tensor::Device device, int64_t max_positions);
  // One stage, with its layers sharded for one rank of a grid of these sizes. `leaves` is the
  // number of leaves of row-parallel products and of the vocabulary (numerics contract, N6): the tp
  // size or, if tp is 1, any number that divides the split dimensions; 0: one per tp rank. Throws
  // Error(kUsage) for sizes that do not divide the model.
  Decoder(const ModelSpec& spec, tensor::Device device, int64_t max_positions,
          const StageRange& stage, const dist::GridSizes& sizes = {}, int64_t leaves = 0);
  const ModelSpec& spec() const { return spec_; }  // the whole model
  // Layers, MTP layers and head of this rank's shard.
  const ModelSpec& local_spec() const { return local_spec_; }
  const StageRange& stage() const { return stage_; }
  int64_t max_positions() const { return max_positions_; }

  // Residual streams hold this rank's rows only (Batch::tp_rows).
  //
  // Returns the residual stream after the stage's last layer, before the final norm, [T,H], from
  // the context's arena. The tape is in the arena too; without a tape each layer releases its
  // scratch. A tape serves one backward. `input` [T,H] is the output of the previous stage and must
  // live until backward; undefined if the stage has the embedding.
  Tensor forward(const ops::Context& ctx, const ModelParameters& weights, const Batch& batch,
                 Tape* tape, Tensor input = {}) const;

  // dx[T,H] enters as the gradient of forward's result and leaves as the gradient of the stage's
  // input. Gradients of vectors and of the embedding are always added to. Gradients of matrices are
  // added to if `accumulate`, and overwritten otherwise (ParameterInfo::zero_before_backward).
  void backward(const ops::Context& ctx, const ModelParameters& weights,
                const ModelParameters& gradients, const Batch& batch, const Tape& tape, Tensor dx,
                bool accumulate, const BackwardHooks& hooks = {},
                const RouterBalances& routers = {}) const;

  ops::RotaryTable rotary_table() const { return {cos_, sin_, spec_.rope.style}; }

 private:
  ModelSpec spec_, local_spec_;
  StageRange stage_;
  int64_t max_positions_;
  tensor::Buffer rotary_buffer_;
  Tensor cos_, sin_;  // [max_positions, rotary_dim/2]
};

// Runs MTP layer `index`. The decoder's stage needs the head, and the embedding or a copy of it.
// `batch` has each sequence's tokens rolled left by index + 1. `hidden` [T,H] is the output of the
// model or of the previous MTP layer, after its final norm; it must live until backward. Returns y
// [T,H] (mtp.h). y and the tape are in the context's arena.
Tensor mtp_forward(const ops::Context& ctx, const Decoder& decoder, const ModelParameters& weights,
                   size_t index, const Batch& batch, Tensor hidden, MtpTape& tape);
// Returns the y of mtp_forward in generation: keeps nothing for backward; `pages` hold the layer's
// keys and values.
Tensor mtp_step(const ops::Context& ctx, const Decoder& decoder, const ModelParameters& weights,
                size_t index, const Batch& batch, Tensor hidden, const LayerPages& pages);
// dx[T,H] enters as the gradient of y and leaves as the gradient of `hidden`. The embedding gets no
// gradient. Other gradients are added to or overwritten as in Decoder::backward.
void mtp_backward(const ops::Context& ctx, const Decoder& decoder, const ModelParameters& weights,
                  const ModelParameters& gradients, size_t index, const Batch& batch,
                  const MtpTape& tape, Tensor dx, bool accumulate);

}  // namespace slimexx::model
