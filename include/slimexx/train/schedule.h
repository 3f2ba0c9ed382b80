// The pipeline schedule: its sizes, and the length of a step under the order of
// src/train/passes/operations.h.
#pragma once
#include <cstddef>
#include <cstdint>

#include "slimexx/train/options.h"

namespace slimexx::train {

// Stage s of the num_ranks * num_chunks stages is chunk s / num_ranks of rank s % num_ranks.
struct PipelineShape {
  int num_ranks = 1;
  size_t num_chunks = 1;
  bool zero_bubble = false;  // only with one chunk
};
PipelineShape make_pipeline_shape(const TrainOptions& options, int num_ranks, size_t num_chunks);

// Interleaved stages take microbatches in groups of num_ranks; empty ones fill the last group.
int64_t round_up_microbatches(const PipelineShape& shape, int64_t num_microbatches);

// Time from a step's first forward to its last gradient, in units of one rank's forward and
// backward of a microbatch. Assumes equally fast ranks, and equal times for a forward, for
// gradients of inputs and for gradients of weights. The excess over num_microbatches is pipeline
// bubble.
double count_step_slots(const PipelineShape& shape, int64_t num_microbatches);
// Like count_step_slots, for forwards only, in units of one rank's forward.
double count_scoring_slots(const PipelineShape& shape, int64_t num_microbatches);

}  // namespace slimexx::train
