// What a step computes on each rank, for the runner and for its plan: the forward over a staged
// batch, and the sampling of rows of it. No tensor-parallel rank needs to know a token or a row on
// the host. All of them have whole rows of logits and sample the same tokens.
#pragma once
#include <cstdint>
#include <vector>

#include "rollout/step/batch_builder.h"
#include "slimexx/model/decoder.h"
#include "slimexx/ops/sampling.h"

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

// A pass of the MTP layer behind that of a step, one row a sequence: it guesses what follows the
// token that the pass before guessed. Its keys take the places of tokens that are not there yet,
// and the step that computes those writes them anew. From the arena, [R] each; `batch` is of this
// pass.
struct DraftChain {
  std::vector<dist::Range> tp_rows;  // the batch's
  ops::DraftPass pass;
  tensor::Tensor from_rows;
  std::vector<int32_t> planned_cu_seqlens;  // the batch's, in planning
  model::Batch batch;
};
// Behind the batch `checked` of one token a row. cu_seqlens [R+1] i32 of the device.
DraftChain make_draft_chain(const ops::Context& ctx, const model::Decoder& decoder,
                            const model::Batch& checked, tensor::Tensor cu_seqlens);
// y [R,H] of the pass, as draft_step's, from that of the pass before.
tensor::Tensor draft_further(const ops::Context& ctx, const model::Decoder& decoder,
                             const model::ModelParameters& weights, const DraftChain& chain,
                             tensor::Tensor y);
model::HeadParameters<tensor::Tensor> drafting_head(const model::ModelParameters& weights);

}  // namespace slimexx::rollout
