// The microbatches that take the most memory of all that packing can make, which plans measure.
#pragma once
#include <cstdint>
#include <vector>

#include "slimexx/train/scorer.h"

namespace slimexx::train {

struct MicrobatchLimits {
  int64_t num_tokens = 0, num_samples = 1;  // of a microbatch
  int64_t longest = 2;                      // tokens of a sample
  // The most rows whose logits a rank keeps for backward. Of more rows it keeps none, so that a
  // microbatch of just as many may take the most.
  int64_t kept_logit_rows = 0;
  int64_t num_trained_mtp = 0;  // layers, which have logits of their own
  int cp_size = 1;
};

// Samples with every field there is. Memory grows with tokens, samples, the longest sample and rows
// of the head, until the logits of those are no longer kept: it is measured at the extremes, and at
// the most rows that are kept. With context parallelism all ranks plan alike: each has as many
// tokens as uneven chunks of so many samples can give one.
std::vector<std::vector<Sample>> list_largest_microbatches(const MicrobatchLimits& limits);

}  // namespace slimexx::train
