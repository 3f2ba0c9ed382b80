// Upper bounds on the size and memory of a step, known before anything is allocated.
#pragma once
#include <cstdint>

#include "rollout/step/batch_builder.h"
#include "slimexx/model/decoder.h"
#include "slimexx/rollout/engine.h"

namespace slimexx::rollout {

struct StepSizes {
  int64_t max_tokens = 0, max_sequences = 0;  // per batch
  int64_t max_sequence_tokens = 0;
  int64_t page_tokens = 0;
  int64_t allowed_tokens = 0;  // as for sample_tokens
  int64_t num_mtp_drafts = 0;  // passes of the MTP layer
  int64_t max_pages() const { return (max_sequence_tokens - 1) / page_tokens + 1; }  // per sequence
  BatchLimits batch_limits() const {
    return {.max_tokens = max_tokens,
            .max_sequences = max_sequences,
            .max_pages = max_pages(),
            .page_tokens = page_tokens,
            .num_mtp_drafts = num_mtp_drafts};
  }
};

// `spec` with all layers that have cached keys and values: the model's, then the MTP layer that
// drafts.
model::ModelSpec with_cached_layers(model::ModelSpec spec, bool drafts_by_mtp);

// `options` must be checked. `num_sampled_tokens` as for Engine.
StepSizes step_sizes(const model::Decoder& decoder, const EngineOptions& options,
                     int64_t num_sampled_tokens);

// See Engine::runs_in_lock_step.
bool step_together(const dist::Groups& groups);

// Upper bound on this rank's rows of a batch, which is split over the tensor-parallel ranks.
int64_t most_own_rows(const StepSizes& sizes, const dist::Groups& groups);
// See ops::Context::most_ep_rows.
int64_t most_ep_rows(const StepSizes& sizes, const dist::Groups& groups);
// Upper bound on the rows of one head call.
int64_t count_head_rows(const model::Decoder& decoder, tensor::Device device,
                        const StepSizes& sizes);

// Arena bytes for a step, measured by a dry run of the largest step. Assumes that the engine's
// other ranks run steps of the same size.
int64_t plan_step_arena(const model::Decoder& decoder, const model::ModelParameters& weights,
                        tensor::Device device, const StepSizes& sizes, const dist::Groups& groups);

// Recorded decode steps kept at a time: 32 shapes for each of the builder's two sets. The shrinking
// batches and growing sequences of a rollout pass through some 20 shapes.
inline constexpr int64_t kMaxRecordedSteps = 64;
// Upper bound on the driver's device memory for kMaxRecordedSteps graphs. The engine does not
// allocate it, only leaves it free. `spec` has the leaves of the engine's decoder.
int64_t plan_recorded_bytes(const model::ModelSpec& spec, const dist::Groups& groups,
                            int64_t num_mtp_drafts);

}  // namespace slimexx::rollout
