// How much memory a trainer's activations take, and which activations layers keep in the available
// memory. Sizes come from dry runs of the same code in planning contexts.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "slimexx/model/layer_keep.h"
#include "slimexx/train/activation_memory.h"
#include "slimexx/train/scorer.h"

namespace slimexx::model {
struct RouterBalances;
}

namespace slimexx::train {

// Activation memory with the largest microbatches in flight, including everything else in the
// arena.
struct ActivationBytes {
  int64_t least = 0;  // layers keep as little as with recompute_granularity: full
  int64_t most = 0;   // layers keep everything; more memory would be unused
  // Parts of `least` with several microbatches in flight: `kept` per microbatch for backward, and
  // `scratch` of the running operation, shared by all.
  int64_t in_flight = 1, kept = 0, scratch = 0;
  // Operands of deferred weight gradients: `deferred` bytes for each of num_deferred microbatches.
  int64_t num_deferred = 0, deferred = 0;
};

// The rank whose sizes a planning context measures. The rank with the most rows need not take the
// most memory: a head cuts many rows into chunks, and keeps the logits of fewer rows whole.
enum class MeasuredRank {
  kLargest,  // the largest sizes of any tp and cp rank, for a plan that holds on all of them
  kOwn,      // the sizes of this rank
};

struct Assignment;   // src/train/memory/assignment.h
struct ScoringWork;  // src/train/passes/scoring.h
struct SlotBytes;    // src/train/passes/executor.h
struct TrainedStages;
class GradientReduction;

// Default of train.max_logits_gib, in bytes.
int64_t default_max_logits_bytes(tensor::Device device);

class ActivationPlans {
 public:
  // All are borrowed.
  ActivationPlans(TrainedStages& stages, ActivationMemory& memory,
                  const GradientReduction& reduction, const model::RouterBalances& balances)
      : stages_(stages), memory_(memory), reduction_(reduction), balances_(balances) {}

  // Upper bound on activation memory if no sequence is longer than `longest_sequence` tokens and no
  // microbatch has more than `num_samples` samples. With recompute_granularity none or full,
  // `least` and `most` are equal.
  ActivationBytes plan_activations(int64_t longest_sequence, int64_t num_samples) const;
  // Like plan_activations, for compute_log_probs of the policy or of another model.
  int64_t plan_scoring(int64_t longest_sequence, int64_t num_samples) const;
  int64_t plan_scoring(const StageDecoders& decoders, const model::ParameterStore& weights,
                       int64_t longest_sequence, int64_t num_samples) const;
  // Memory of forward, loss and backward with microbatches of `samples` in all slots, if layers
  // keep activations as `keep` says.
  int64_t plan_microbatch(std::span<const Sample> samples, model::KeepPlan keep,
                          MeasuredRank measured = MeasuredRank::kLargest) const;
  // Overrides train.max_logits_gib. Another limit changes the rows per chunk of logits, and with
  // that the last bits of the head's gradient.
  void limit_logits(int64_t max_logits_bytes);
  int64_t max_logits_bytes() const;

  // Memory of this rank's microbatches. Without planned memory the arena grows to the size of the
  // largest microbatches.
  SlotPlan reserve_for_step(std::span<const Sample> samples, const Assignment& assignment,
                            const SlotCounts& counts);
  SlotPlan reserve_for_scoring(const ScoringWork& work, const Assignment& assignment,
                               size_t num_slots);
  // Which activations the layers of each microbatch keep: [microbatch * chunks + chunk]. If
  // recomputation involves other ranks, all of them keep as little as the rank that keeps least.
  // Collective in planned memory.
  std::vector<model::KeepPlan> choose_keeps(std::span<const Sample> samples,
                                            const Assignment& assignment,
                                            const SlotPlan& plan) const;
  // Upper bound on the tokens in the EP x ETP group if this rank runs a microbatch of num_tokens
  // and the others run any microbatches of the pass. All ranks know all microbatches, so no
  // communication is needed.
  int64_t most_ep_rows(int64_t num_tokens) const;

 private:
  SlotBytes measure_step(std::span<const Sample> samples, std::span<const int64_t> indices,
                         model::KeepPlan keep, const SlotCounts& counts,
                         MeasuredRank measured) const;

  TrainedStages& stages_;
  ActivationMemory& memory_;
  const GradientReduction& reduction_;
  const model::RouterBalances& balances_;
  int64_t most_tokens_ = 0;  // in a microbatch of any rank, in the last step or scoring
};

}  // namespace slimexx::train
