// Attention's backward with context parallelism or without.
//
// Legend: n rows of the batch, K rows whose keys they see, H query heads.
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
  Tensor k, v;       // as their gradients
  Tensor out, dout;  // [n, H*Dv]
  Tensor lse;        // [n,H]
};

// As ops::attention_backward of batch.attention. Its kernels on CUDA take packed sequences alone:
// there a rank's queries and what belongs to them are spread over whole sequences, with zeros for
// those of other ranks, which are not walked (AttentionLayout::query_spans) but where queries have
// lists of their keys.
void context_attention_backward(const ops::Context& ctx, const Batch& batch,
                                const AttentionGradients& d, const AttentionValues& x, float scale);

}  // namespace slimexx::model
