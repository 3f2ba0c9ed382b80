// One decoder layer: pre-norm, with the sandwich norms of GLM-4-0414 where the spec has them:
//   a = attention(norm(x));    x_mid = x + [norm](a)
//   m = mlp(norm(x_mid));      x_out = x_mid + [norm](m)
// Every residual sum also takes the norm that follows it: that of x_out is the next layer's.
//
// Legend: T packed tokens, H hidden size.
#pragma once
#include <cstdint>
#include <string>
#include <variant>

#include "slimexx/model/batch.h"
#include "slimexx/model/spec.h"

namespace slimexx::model {

// With T = ParameterId what a layer has, with T = Tensor its weights or its gradients.
template <class T>
struct LayerParameters {
  T input_norm, post_attention_norm;  // [H]; the latter, as post_mlp_norm, only of sandwich norms
  T mlp_norm, post_mlp_norm;
  std::variant<GqaParameters<T>, MlaParameters<T>> attention;
  std::variant<DenseMlpParameters<T>, MoeMlpParameters<T>> mlp;
};

struct LayerTape {
  Tensor x = {};           // [T,H] the layer's input
  Tensor selected = {};    // [T,k] i32, the keys that queries see; undefined: all
  Tensor normed = {};      // [T,H] its norm; undefined: backward makes it again
  Tensor o_raw = {};       // [T,H] attention's output before its sandwich norm; undefined without
  Tensor x_mid = {};       // [T,H] after the attention residual
  Tensor mid_normed = {};  // [T,H] its norm; undefined: backward makes it again
  Tensor down_raw = {};    // [T,H] the MLP's output before its sandwich norm; undefined without
  std::variant<GqaTape, MlaTape> attention = {};
  std::variant<DenseMlpTape, MoeMlpTape> mlp = {};
};

// What a layer hands to the next.
struct LayerInput {
  Tensor x = {};       // [T,H] the residual stream
  Tensor normed = {};  // [T,H] its norm by this layer's input_norm
  // [T,k] i32, the keys that the last layer selected which selects any: later layers may share
  // them.
  Tensor selected = {};
};

// `index` names it: "layers.3.".
LayerParameters<ParameterId> declare(ParameterList& list, const ModelSpec& spec,
                                     const LayerSpec& layer, int64_t index);
// Bytes of one layer's tape at a level, but x and a selection, as `device` allocates them.
int64_t layer_tape_bytes(const ModelSpec& spec, int64_t layer, tensor::Device device,
                         const RowCounts& rows, LayerKeep level);

}  // namespace slimexx::model
