// What a step computes on each rank, for the runner and for its plan: the forward over a staged
// batch, and the sampling of rows of it. No tensor-parallel rank needs to know a token or a row on
// the host. All of them have whole rows of logits and sample the same tokens.
#pragma once
#include <cstdint>

#include "rollout/batch_builder.h"
#include "slimexx/model/decoder.h"

namespace slimexx::rollout {

// The residual stream [T,H] after the last layer, from the arena, whole on every tp rank.
tensor::Tensor forward_step(const ops::Context& ctx, const model::Decoder& decoder,
                            const model::ModelParameters& weights, const model::Batch& staged);
// (scratch) tokens and log_probs of the group. `allowed_tokens` as sample_tokens.
void sample_rows(const ops::Context& ctx, const model::Decoder& decoder,
                 const model::ModelParameters& weights, tensor::Tensor x,
                 const SamplingGroup& group, int64_t allowed_tokens);

}  // namespace slimexx::rollout
