// The embedding: one table row per token. With tensor parallelism each rank holds a shard of the
// vocabulary and contributes zeros for other tokens, so the sum over ranks is exact.
#pragma once
#include <cstdint>

#include "slimexx/model/batch.h"
#include "slimexx/model/parameters.h"
#include "slimexx/ops/context.h"

namespace slimexx::model {

class ParameterList;

struct EmbeddingSpec {
  int64_t hidden_size = 0, vocab_size = 0;
  bool is_head_too = false;  // tied: the head's product writes the gradient first
};

ParameterId declare(ParameterList& list, const EmbeddingSpec& spec);

// x[t,H]: this rank's rows (Batch::tp_rows) of the embedded batch.
void embed(const ops::Context& ctx, Tensor table, const Batch& batch, Tensor x);
// Adds the gradient dx[t,H] of x to dtable (f32).
void embed_backward(const ops::Context& ctx, Tensor dtable, const Batch& batch, Tensor dx);

}  // namespace slimexx::model
