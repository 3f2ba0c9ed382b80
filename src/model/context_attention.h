// Backward of attention, with or without context parallelism.
//
// Legend: n rows of the batch, K rows that they see as keys, H query heads.
#pragma once
#include "slimexx/model/batch.h"
#include "slimexx/ops/context.h"

namespace slimexx::model {

struct AttentionGradients {
  Tensor dq;      // [n, H*D], free row stride
  Tensor dk, dv;  // [K,Hkv,D], [K,Hkv,Dv]
};
struct AttentionValues {
  Tensor q;          // [n, H*D], free row stride
  Tensor k, v;       // as dk, dv
  Tensor out, dout;  // [n, H*Dv]
  Tensor lse;        // [n,H]
};

// Like ops::attention_backward for batch.attention. With context parallelism on CUDA, whose kernels
// only take packed sequences, this copies the rank's rows into whole sequences, with zeros in the
// rows of other ranks. The kernels skip these zero rows (AttentionLayout::query_spans), except with
// selected keys.
void context_attention_backward(const ops::Context& ctx, const Batch& batch,
                                const AttentionGradients& d, const AttentionValues& x, float scale);

}  // namespace slimexx::model
