// The computation of a step on each rank, shared by the runner and its memory plan: the forward
// over a staged batch, and sampling from its rows. No tensor-parallel rank needs tokens or rows on
// the host. All of them have whole rows of logits and sample the same tokens.
#pragma once
#include <cstdint>
#include <vector>

#include "rollout/step/batch_builder.h"
#include "slimexx/model/decoder.h"
#include "slimexx/ops/sampling.h"

namespace slimexx::rollout {

// The residual stream [T,H] after the last layer, from the arena: `own` has this tp rank's rows,
// `whole` all rows.
struct StepOutput {
  std::vector<dist::Range> tp_rows;  // referenced by the batch
  model::Batch batch;
  tensor::Tensor own, whole;
};
StepOutput forward_step(const ops::Context& ctx, const model::Decoder& decoder,
                        const model::ModelParameters& weights, const model::Batch& staged);
// (scratch) Writes tokens and log_probs of the group. `allowed_tokens` as for sample_tokens.
void sample_rows(const ops::Context& ctx, const model::Decoder& decoder,
                 const model::HeadParameters<tensor::Tensor>& head, tensor::Tensor x,
                 const SamplingGroup& group, int64_t allowed_tokens);

// Output y [T,H] of the first MTP layer, whole on every tp rank. next_tokens[r] (i32) is the token
// after row r; y's row r predicts the token after that. The layer's keys and values are in the last
// of the batch's pages.
tensor::Tensor draft_step(const ops::Context& ctx, const model::Decoder& decoder,
                          const model::ModelParameters& weights, const StepOutput& step,
                          tensor::Tensor next_tokens);

// A further pass of the MTP layer, one row per sequence: it drafts the token after the draft of the
// pass before. Its keys go to slots of tokens that are not computed yet; the step that computes
// those tokens overwrites them. From the arena, [R] each; `batch` describes this pass.
struct DraftChain {
  std::vector<dist::Range> tp_rows;  // referenced by the batch
  ops::DraftPass pass;
  tensor::Tensor from_rows;
  std::vector<int32_t> planned_cu_seqlens;  // referenced by the batch while planning
  model::Batch batch;
};
// Makes the draft pass after `checked`, a batch with one token per row. cu_seqlens [R+1] i32 on the
// device.
DraftChain make_draft_chain(const ops::Context& ctx, const model::Decoder& decoder,
                            const model::Batch& checked, tensor::Tensor cu_seqlens);
// y [R,H] of this pass, as for draft_step, computed from `y` of the pass before.
tensor::Tensor draft_further(const ops::Context& ctx, const model::Decoder& decoder,
                             const model::ModelParameters& weights, const DraftChain& chain,
                             tensor::Tensor y);
model::HeadParameters<tensor::Tensor> drafting_head(const model::ModelParameters& weights);

}  // namespace slimexx::rollout
