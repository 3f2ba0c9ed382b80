// How large a step can be, and the memory that this takes: known before any of it is taken.
#pragma once
#include <cstdint>

#include "rollout/step/batch_builder.h"
#include "slimexx/model/decoder.h"
#include "slimexx/rollout/engine.h"

namespace slimexx::rollout {

struct StepSizes {
  int64_t max_tokens = 0, max_sequences = 0;  // of a batch
  int64_t max_sequence_tokens = 0;
  int64_t page_tokens = 0;
  int64_t allowed_tokens = 0;  // as sample_tokens
  int64_t num_mtp_drafts = 0;  // passes of the MTP layer
  int64_t max_pages() const { return (max_sequence_tokens - 1) / page_tokens + 1; }  // a sequence's
  BatchLimits batch_limits() const {
    return {.max_tokens = max_tokens,
            .max_sequences = max_sequences,
            .max_pages = max_pages(),
            .page_tokens = page_tokens,
            .num_mtp_drafts = num_mtp_drafts};
  }
};

// With the layers whose keys and values are cached: the model's, and behind them the one that
// drafts.
model::ModelSpec with_cached_layers(model::ModelSpec spec, bool drafts_by_mtp);

// Of checked options. `num_sampled_tokens` as Engine.
StepSizes step_sizes(const model::Decoder& decoder, const EngineOptions& options,
                     int64_t num_sampled_tokens);

// Engine::runs_in_lock_step.
bool step_together(const dist::Groups& groups);

// Rows that this rank's part of a batch has at most: of tensor-parallel ranks each has a share.
int64_t most_own_rows(const StepSizes& sizes, const dist::Groups& groups);
// As ops::Context::most_ep_rows.
int64_t most_ep_rows(const StepSizes& sizes, const dist::Groups& groups);
// Rows that one head call takes at most.
int64_t count_head_rows(const model::Decoder& decoder, tensor::Device device,
                        const StepSizes& sizes);

// The arena that a step needs at most, measured by a dry run of the largest one. The other ranks of
// the engine may have steps as large.
int64_t plan_step_arena(const model::Decoder& decoder, const model::ModelParameters& weights,
                        tensor::Device device, const StepSizes& sizes, const dist::Groups& groups);

// Decode steps that are recorded at a time: those of 32 shapes, for both sets of a builder. A
// rollout's batches shrink and its sequences grow, which takes it through some 20 shapes.
inline constexpr int64_t kMaxRecordedSteps = 64;
// What the driver keeps on the device for that many, at most: the engine does not take it, but
// leaves it. `spec` with the leaves of the engine's decoder.
int64_t plan_recorded_bytes(const model::ModelSpec& spec, const dist::Groups& groups,
                            int64_t num_mtp_drafts);

}  // namespace slimexx::rollout
