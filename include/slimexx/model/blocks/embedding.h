// The embedding: a row of the table for each token. With tensor parallelism each rank holds the
// rows of its tokens, and gives zeros for the others to a sum that is exact.
#pragma once
#include <cstdint>

#include "slimexx/model/batch.h"
#include "slimexx/model/parameters.h"
#include "slimexx/ops/context.h"

namespace slimexx::model {

class ParameterList;

struct EmbeddingSpec {
  int64_t hidden_size = 0, vocab_size = 0;
  bool is_head_too = false;  // tied: the head's product writes its gradient first
};

ParameterId declare(ParameterList& list, const EmbeddingSpec& spec);

// x[t,H]: this rank's rows (Batch::tp_rows) of the embedded batch.
void embed(const ops::Context& ctx, Tensor table, const Batch& batch, Tensor x);
// Adds to dtable f32 what dx[t,H] says of x.
void embed_backward(const ops::Context& ctx, Tensor dtable, const Batch& batch, Tensor dx);

}  // namespace slimexx::model
