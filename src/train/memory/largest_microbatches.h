// The microbatches that need the most memory among all that packing can produce. Plans measure
// them.
#pragma once
#include <cstdint>
#include <vector>

#include "slimexx/train/scorer.h"

namespace slimexx::train {

struct MicrobatchLimits {
  int64_t num_tokens = 0, num_samples = 1;  // of a microbatch
  int64_t longest = 2;                      // tokens of a sample
  // A rank keeps a microbatch's logits for backward if they have at most this many rows. So a
  // microbatch with exactly this many rows may need the most memory.
  int64_t kept_logit_rows = 0;
  int64_t num_trained_mtp = 0;  // layers, which have logits of their own
  int cp_size = 1;
};

// Samples with all optional fields. Memory grows with tokens, samples, the longest sample and rows
// of the head, until the logits are no longer kept: the list has the extremes, and the most rows
// whose logits are kept. With context parallelism every rank plans for the most tokens that uneven
// chunks can give to one rank.
std::vector<std::vector<Sample>> list_largest_microbatches(const MicrobatchLimits& limits);

}  // namespace slimexx::train
