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

// Inputs that all forwards of a scoring pass share.
struct ScoringWork {
  std::span<const StageChunk> chunks;
  const model::HeadOptions& head;
  std::span<const Sample> samples;
  std::span<const std::vector<int64_t>> microbatches;  // of this rank: indices of samples
};

// Runs the operations of list_forward_operations. On the stage with the head it appends to `bytes`,
// per microbatch, the log-probs and then the entropies, one sample after another.
void run_scoring(std::span<const Operation> operations, const ScoringWork& work,
                 std::span<Slot> slots, std::string& bytes);

// Reads one microbatch of run_scoring's bytes from bytes[at] into scores[indices] and advances
// `at`.
void read_scores(const std::string& bytes, size_t& at, std::span<const Sample> samples,
                 std::span<const int64_t> indices, std::span<TokenScores> scores);

// Memory of one of `num_slots` slots for any of `work`'s microbatches. `shape` and `rank` describe
// the pipeline.
SlotBytes measure_scoring(const ScoringWork& work, int rank, const PipelineShape& shape,
                          size_t num_slots, tensor::Device device, const dist::Groups& groups,
                          int64_t most_ep_rows = 0);

}  // namespace slimexx::train
