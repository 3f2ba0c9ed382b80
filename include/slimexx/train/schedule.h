// The schedule of a pipeline's steps: its sizes, and how long a step takes in the order in which
// its ranks work (src/train/passes/operations.h).
#pragma once
#include <cstddef>
#include <cstdint>

#include "slimexx/train/options.h"

namespace slimexx::train {

// Stage s of the num_ranks * num_chunks stages is chunk s / num_ranks of rank s % num_ranks.
struct PipelineShape {
  int num_ranks = 1;
  size_t num_chunks = 1;
  bool zero_bubble = false;  // of one chunk
};
PipelineShape make_pipeline_shape(const TrainOptions& options, int num_ranks, size_t num_chunks);

// Interleaved stages take microbatches in whole groups, of as many as there are ranks: empty ones
// fill the last.
int64_t round_up_microbatches(const PipelineShape& shape, int64_t num_microbatches);

// The time from a step's first forward to its last gradient, in those that a rank's forward and
// backward of a microbatch take. Ranks are taken to be as fast as each other, and a forward to take
// as long as gradients of inputs, or those of weights. What is above num_microbatches is waits.
double count_step_slots(const PipelineShape& shape, int64_t num_microbatches);
// The same of forwards alone, in those that a rank's forward takes.
double count_scoring_slots(const PipelineShape& shape, int64_t num_microbatches);

}  // namespace slimexx::train
