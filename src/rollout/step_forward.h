// What a step computes on each rank, for the runner and for its plan: the forward over a staged
// batch, and the sampling of rows of it. No tensor-parallel rank needs to know a token or a row on
// the host. All of them have whole rows of logits and sample the same tokens.
#pragma once
#include <cstdint>
#include <vector>

#include "rollout/batch_builder.h"
#include "slimexx/model/decoder.h"

namespace slimexx::rollout {

// The residual stream [T,H] after the last layer, from the arena: this tp rank's rows, and all.
struct StepOutput {
  std::vector<dist::Range> tp_rows;  // the batch's
  model::Batch batch;
  tensor::Tensor own, whole;
};
StepOutput forward_step(const ops::Context& ctx, const model::Decoder& decoder,
                        const model::ModelParameters& weights, const model::Batch& staged);
// (scratch) tokens and log_probs of the group. `allowed_tokens` as sample_tokens.
void sample_rows(const ops::Context& ctx, const model::Decoder& decoder,
                 const model::HeadParameters<tensor::Tensor>& head, tensor::Tensor x,
                 const SamplingGroup& group, int64_t allowed_tokens);

// y [T,H] of the first MTP layer, whole on every tp rank, whose row r guesses what follows
// next_tokens[r] (i32), the token behind row r. Its keys and values are the last of the batch's
// pages.
tensor::Tensor draft_step(const ops::Context& ctx, const model::Decoder& decoder,
                          const model::ModelParameters& weights, const StepOutput& step,
                          tensor::Tensor next_tokens);
model::HeadParameters<tensor::Tensor> drafting_head(const model::ModelParameters& weights);

}  // namespace slimexx::rollout
