// The scoring pass of Scorer and Trainer.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "slimexx/dist/groups.h"
#include "slimexx/train/scorer.h"
#include "train/passes/executor.h"

namespace slimexx::train {

// What all forwards of a scoring pass share.
struct ScoringWork {
  std::span<const StageChunk> chunks;
  const model::HeadOptions& head;
  std::span<const Sample> samples;
  std::span<const std::vector<int64_t>> microbatches;  // of this rank: indices of samples
};

// Runs what list_forward_operations gave. On the stage with the head it appends to `bytes` the
// log-probs, then the entropies of each microbatch, one sample after another.
void run_scoring(std::span<const Operation> operations, const ScoringWork& work,
                 std::span<Slot> slots, std::string& bytes);

// Reads what run_scoring wrote of a microbatch at bytes[at] into scores[indices] and moves `at`
// behind it.
void read_scores(const std::string& bytes, size_t& at, std::span<const Sample> samples,
                 std::span<const int64_t> indices, std::span<TokenScores> scores);

// What one of `num_slots` slots must hold, whichever of `work`'s microbatches it gets. `shape` and
// `rank` are of the pipeline.
SlotBytes measure_scoring(const ScoringWork& work, int rank, const PipelineShape& shape,
                          size_t num_slots, tensor::Device device, const dist::Groups& groups,
                          int64_t most_ep_rows = 0);

}  // namespace slimexx::train
