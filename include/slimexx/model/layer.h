// One decoder layer: pre-norm, with the sandwich norms of GLM-4-0414 if the spec has them:
//   a = attention(norm(x));    x_mid = x + [norm](a)
//   m = mlp(norm(x_mid));      x_out = x_mid + [norm](m)
// Each residual sum is fused with the norm that follows it; for x_out this is the next layer's
// norm.
//
// Legend: T packed tokens, H hidden size.
#pragma once
#include <cstdint>
#include <string>
#include <variant>

#include "slimexx/model/batch.h"
#include "slimexx/model/spec.h"

namespace slimexx::model {

// Maps a variant of block specs to the variants of their parameters, gradients and tapes,
// alternative by alternative.
template <class Spec>
struct KindsOf;
template <class... Blocks>
struct KindsOf<std::variant<Blocks...>> {
  template <class T>
  using Parameters = std::variant<typename Blocks::template Parameters<T>...>;
  using Tape = std::variant<typename Blocks::Tape...>;
};

// T = ParameterId: the parameters of a layer. T = Tensor: its weights or gradients.
template <class T>
struct LayerParameters {
  T input_norm, post_attention_norm;  // [H]; post_* norms only with sandwich norms
  T mlp_norm, post_mlp_norm;
  typename KindsOf<AttentionSpec>::template Parameters<T> attention;
  typename KindsOf<MlpSpec>::template Parameters<T> mlp;
};

struct LayerTape {
  Tensor x = {};           // [T,H] the layer's input
  Tensor selected = {};    // [T,k] i32, the keys that queries see; undefined: all
  Tensor normed = {};      // [T,H] norm of x; undefined: backward recomputes it
  Tensor o_raw = {};       // [T,H] attention output before its sandwich norm, if there is one
  Tensor x_mid = {};       // [T,H] after the attention residual
  Tensor mid_normed = {};  // [T,H] norm of x_mid; undefined: backward recomputes it
  Tensor down_raw = {};    // [T,H] MLP output before its sandwich norm, if there is one
  KindsOf<AttentionSpec>::Tape attention = {};
  KindsOf<MlpSpec>::Tape mlp = {};
};

// The values that a layer passes to the next layer.
struct LayerInput {
  Tensor x = {};       // [T,H] the residual stream
  Tensor normed = {};  // [T,H] its norm by this layer's input_norm
  // [T,k] i32, the keys chosen by the most recent layer that selects keys; later layers may share
  // them.
  Tensor selected = {};
};

// `index` goes into the parameter names: "layers.3.".
LayerParameters<ParameterId> declare(ParameterList& list, const ModelSpec& spec,
                                     const LayerSpec& layer, int64_t index);
// Bytes of one layer's tape at a level on `device`, without x and the selection.
int64_t layer_tape_bytes(const ModelSpec& spec, int64_t layer, tensor::Device device,
                         const RowCounts& rows, LayerKeep level);

}  // namespace slimexx::model
