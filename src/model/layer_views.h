// Views that forward and backward share. Legend as in transformer.h.
#pragma once
#include <cmath>

#include "slimexx/model/transformer.h"
#include "slimexx/ops/rotary.h"

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

}  // namespace slimexx::model
