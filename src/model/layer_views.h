// Views that forward and backward share. Legend as in transformer.h.
#pragma once
#include <cmath>

#include "slimexx/model/transformer.h"

namespace slimexx::model {

// rows[T, heads*D] as [T, heads, D]; the token stride is kept, so a column range of a wider row
// works.
Tensor view_heads(Tensor rows, int64_t heads, int64_t head_dim);

struct QkvViews {
  Tensor q, k, v;  // [T,Hq,D], [T,Hkv,D], [T,Hkv,D]
};
// `values` has the values in its last columns; it may be qkv.
QkvViews split_qkv(Tensor qkv, Tensor values, const ModelSpec& spec);

inline ops::QkvHeads qkv_heads(const ModelSpec& spec) {
  return {spec.num_heads, spec.num_kv_heads, spec.head_dim};
}

inline float attention_scale(const ModelSpec& spec) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(spec.head_dim)));
}

// A layer's tape in two parts, both without x: what kFull keeps, and the rest but for what backward
// can make again at no more than a norm's or SwiGLU's cost. Where no backward will read the rest, h
// stands in for gate_up, which is twice its size.
void allocate_kept(Arena& arena, const ModelSpec& spec, int64_t num_tokens, LayerTape& tape);
void allocate_activations(Arena& arena, const ModelSpec& spec, int64_t num_tokens,
                          bool for_backward, LayerTape& tape);

}  // namespace slimexx::model
