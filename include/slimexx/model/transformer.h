// The decoder: one forward for training, prefill and decode, and its backward, driven by ModelSpec.
// Training keeps what backward needs on a tape; generation keeps nothing and writes keys and values
// to pages. All memory comes from the context's arena; in a planning context the same calls measure
// it.
//
// Legend: T packed tokens, H hidden, D head dimension, Hq/Hkv heads, F feed-forward, R selected
// rows.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "slimexx/model/parameters.h"
#include "slimexx/model/spec.h"
#include "slimexx/ops/attention.h"
#include "slimexx/ops/rotary.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::model {

using tensor::Arena;
using tensor::Stream;
using tensor::Tensor;

struct LayerPages {
  Tensor k, v;  // [num_pages, page_tokens, Hkv, D]
};

// What one forward runs over. Packed (training): pages and slots are empty. Paged (generation): the
// batch's keys and values are written to `slots` first, then attention reads the page table.
struct Batch {
  Tensor tokens;     // [T] i32
  Tensor positions;  // [T] i32
  ops::AttentionLayout attention;
  Tensor slots;                       // [T] i32
  std::span<const LayerPages> pages;  // by layer
};

// What one layer keeps from forward to backward. A level keeps all of the level before and adds to
// it; backward computes the rest again, with the same bits.
enum class LayerKeep : uint8_t {
  kInputs,  // x, attention's result and its log-sums, and x_mid where there are no sandwich norms
  kNormInputs,  // o_raw and down_raw, the inputs of sandwich norms: saves two products
  kGateUp,      // gate_up: saves its product
  kAll,         // qkv and x_mid: backward computes norms and h again, and no product
};
inline constexpr int kNumLayerKeeps = 4;

// The levels of all layers: layers [0, num_raised) keep one level more than `level`.
struct KeepPlan {
  LayerKeep level = LayerKeep::kAll;
  int64_t num_raised = 0;
  LayerKeep of(int64_t layer) const {
    return layer < num_raised ? static_cast<LayerKeep>(static_cast<int>(level) + 1) : level;
  }
  bool operator==(const KeepPlan&) const = default;
};

struct LayerTape {
  Tensor x = {};           // [T,H] the layer's input
  Tensor normed = {};      // [T,H] its norm; undefined: backward makes it again
  Tensor qkv_raw = {};     // [T,(Hq+2Hkv)D] before QK-norm; undefined without QK-norm
  Tensor qkv = {};         // [T,(Hq+2Hkv)D] normed and rotated; with QK-norm [T,(Hq+Hkv)D]: the
                           // values are in qkv_raw
  Tensor attention = {};   // [T,Hq D]
  Tensor lse = {};         // [T,Hq]
  Tensor o_raw = {};       // [T,H] before its sandwich norm; undefined without
  Tensor x_mid = {};       // [T,H] after the attention residual
  Tensor mid_normed = {};  // [T,H] its norm; undefined: backward makes it again
  Tensor gate_up = {};     // [T,2F]; backward puts its gradient in its place. Undefined where no
                           // backward reads it: then h is made in the product
  Tensor h = {};           // [T,F] silu(gate) * up; undefined: made from gate_up where it is read
  Tensor down_raw = {};    // [T,H] before its sandwich norm; undefined without
};

struct Tape {
  KeepPlan keep = {};
  std::vector<LayerTape> layers = {};
};

// Bytes of one layer's tape at a level, as `device` allocates them.
int64_t layer_tape_bytes(const ModelSpec& spec, tensor::Device device, int64_t num_tokens,
                         LayerKeep level);
// The plan that keeps the most in `bytes` more than kInputs takes for every layer: all layers are
// raised by a level before the first is raised by another, since lower levels save more time a byte
// (the bytes a level adds to a layer save 2 T H F multiply-adds in T F elements).
KeepPlan choose_keep(const ModelSpec& spec, tensor::Device device, int64_t num_tokens,
                     int64_t bytes);

// Views of one layer's parameters; gradients use the same struct.
struct LayerParameters {
  Tensor input_norm, qkv_weight, qkv_bias, q_norm, k_norm, o_weight, o_bias, post_attention_norm;
  Tensor mlp_norm, gate_up_weight, gate_up_bias, down_weight, down_bias, post_mlp_norm;
};
struct ModelParameters {
  Tensor embedding, final_norm, lm_head;  // lm_head is the embedding where tied
  std::vector<LayerParameters> layers;
  // Of gradients: backward writes the matrices it makes by products, whatever they hold, and adds
  // to the rest: vectors, and the embedding where it is not the head too.
  bool is_fresh = false;
};
ModelParameters as_fresh(ModelParameters gradients);
ModelParameters bind_weights(const ParameterStore& store, const ModelSpec& spec);
ModelParameters bind_gradients(const ParameterStore& store, const ModelSpec& spec);

// What backward calls as it queues its work. Both may be empty.
struct BackwardHooks {
  // All that adds to a layer's gradients is queued: from the last layer to the first. The
  // embedding's follow after that.
  std::function<void(int64_t layer)> layer_done = {};
  // A layer's attention is one product away. What waits on another stream for the work queued so
  // far gets its multiprocessors as that product ends, and attention shares out its work over the
  // rest as they come free; a product gives each multiprocessor its tiles beforehand, and takes
  // longer by all that one of them comes late.
  std::function<void(int64_t layer)> attention_next = {};
};

class Transformer {
 public:
  // Rotary tables cover positions [0, max_positions).
  Transformer(const ModelSpec& spec, tensor::Device device, int64_t max_positions);
  const ModelSpec& spec() const { return spec_; }
  int64_t max_positions() const { return max_positions_; }

  // The residual stream after the last layer, before the final norm, [T,H], allocated from the
  // context's arena. With a tape, so is the tape; without, layer scratch is released as it goes. A
  // tape serves one backward.
  Tensor forward(const ops::Context& ctx, const ModelParameters& weights, const Batch& batch,
                 Tape* tape) const;

  // Accumulates into `gradients`. dx[T,H] is the gradient of forward's result and is overwritten.
  void backward(const ops::Context& ctx, const ModelParameters& weights,
                const ModelParameters& gradients, const Batch& batch, const Tape& tape, Tensor dx,
                const BackwardHooks& hooks = {}) const;

 private:
  // The steps of a layer, in order. Each fills members of the tape that are allocated: forward runs
  // them all, recompute_layer those whose results were not kept.
  void project_qkv(const ops::Context& ctx, const LayerParameters& w, const Batch& batch,
                   int64_t layer, const LayerTape& tape, Tensor normed) const;
  void attend(const ops::Context& ctx, const Batch& batch, int64_t layer,
              const LayerTape& tape) const;
  // o, x_mid and `mid_normed`, the norm of x_mid; `keeps_o`: o_raw is there already.
  void add_attention(const ops::Context& ctx, const LayerParameters& w, const LayerTape& tape,
                     Tensor mid_normed, bool keeps_o) const;
  // gate_up, or else h.
  void project_up(const ops::Context& ctx, const LayerParameters& w, const LayerTape& tape,
                  Tensor mid_normed) const;
  // x_out (not x_mid), and its norm by `next_norm` in `normed` where that is defined.
  void add_mlp(const ops::Context& ctx, const LayerParameters& w, const LayerTape& tape,
               Tensor x_out, Tensor next_norm, Tensor normed) const;
  Tensor norm_again(const ops::Context& ctx, Tensor kept, Tensor x, Tensor w) const;
  void recompute_layer(const ops::Context& ctx, const LayerParameters& w, const Batch& batch,
                       int64_t layer, LayerTape& tape) const;
  // `accumulate`: the gradients of matrices are added to; else they are written.
  void attention_block_backward(const ops::Context& ctx, const LayerParameters& w,
                                const LayerParameters& g, const Batch& batch, const LayerTape& tape,
                                Tensor dx, bool accumulate,
                                const std::function<void()>& attention_next) const;
  void mlp_block_backward(const ops::Context& ctx, const LayerParameters& w,
                          const LayerParameters& g, const LayerTape& tape, Tensor dx,
                          bool accumulate) const;

  ops::RotaryTable rotary_table() const { return {cos_, sin_, spec_.rope.style}; }

  ModelSpec spec_;
  int64_t max_positions_;
  tensor::Buffer rotary_buffer_;
  Tensor cos_, sin_;  // [max_positions, rotary_dim/2]
};

// The head: final norm and vocabulary projection of selected rows, in chunks of rows so that at
// most max_logits_bytes of logits, or of their gradient, are held. Training and sampling both go
// through normalize_logits, so their log-probs are the same bits (N9).
struct HeadOptions {
  float temperature = 1.0f;
  int64_t max_logits_bytes = int64_t{64} << 20;
};
int64_t head_chunk_rows(const ModelSpec& spec, const HeadOptions& options);

// What the head's backward needs; allocated from the arena by head_forward.
struct HeadTape {
  Tensor x;         // [R,H] gathered residual rows
  Tensor hidden;    // [R,H] after the final norm
  Tensor logits;    // [R,V] f32, kept only if R fits one chunk: normalised, on CUDA raw
  Tensor lse = {};  // [R]
};

// x[T,H] from Transformer::forward; rows[R] i32 select, targets[R] i32 are the next tokens. Writes
// log_probs[R] and, if defined, entropies[R]. `tape` null: nothing is kept.
void head_forward(const ops::Context& ctx, const ModelSpec& spec, const ModelParameters& weights,
                  Tensor x, Tensor rows, Tensor targets, const HeadOptions& options,
                  Tensor log_probs, Tensor entropies, HeadTape* tape);
// Given dlog_probs[R] and dentropies[R] (may be undefined), accumulates head gradients and writes
// dx[T,H] (zero in rows that were not selected).
void head_backward(const ops::Context& ctx, const ModelSpec& spec, const ModelParameters& weights,
                   const ModelParameters& gradients, Tensor rows, Tensor targets,
                   const HeadOptions& options, const HeadTape& tape, Tensor entropies,
                   Tensor dlog_probs, Tensor dentropies, Tensor dx);

// Generation: raw logits[R,V] f32 of the selected rows, allocated from the ctx.arena.
Tensor head_logits(const ops::Context& ctx, const ModelSpec& spec, const ModelParameters& weights,
                   Tensor x, Tensor rows);

}  // namespace slimexx::model
