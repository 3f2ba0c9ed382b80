// The trainer: packs samples into microbatches, runs forward, loss and backward over them, reduces
// the gradients and updates the weights. All ranks hold all samples of a step and make the same
// calls. Each rank runs its own microbatches, as many as every other rank; some may be empty. Call
// a trainer from one thread.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "slimexx/dist/groups.h"
#include "slimexx/model/decoder.h"
#include "slimexx/ops/policy_loss.h"
#include "slimexx/train/activation_memory.h"
#include "slimexx/train/activation_plans.h"
#include "slimexx/train/optimizer.h"
#include "slimexx/train/options.h"
#include "slimexx/train/router_load.h"
#include "slimexx/train/scorer.h"
#include "slimexx/train/stage_decoders.h"

namespace slimexx::train {

struct StepLoss {
  ops::PolicyLossOptions policy;
  bool per_token_loss = false;  // divide by the response tokens of the step, not of each sample
  int64_t token_divisor = 0;    // 0: each sample by its own tokens
};

struct StepResult {
  double metrics[ops::kNumLossMetrics] = {};  // over all ranks
  double total_weight = 1;                    // of all tokens in the loss: see sum_token_weights
  std::vector<double> mtp_losses = {};        // by trained MTP layer, mean over its labels
  std::vector<RouterLoad> routers = {};       // one per layer with experts, over all ranks
  double gradient_norm = 0;                   // before clipping
  double learning_rate = 0;                   // as given
  bool skipped = false;                       // NaN or Inf gradients: the weights are as before
  int64_t num_microbatches = 0, num_tokens = 0;
  int64_t microbatches_per_rank = 0;  // run by every rank, empty ones included
  // Capacity of all microbatches in tokens; a longer single sample counts with its own length.
  int64_t packed_room_tokens = 0;
  double flops = 0;  // forward and backward of the step, all ranks
  // Time of the update, from the gradient norm to the new weights on this rank; only with the state
  // in host memory, because otherwise the update overlaps later work.
  double update_seconds = 0;
  std::optional<double> fp8_changed = {};  // share of FP8 values whose bytes the step changed
  model::KeepPlan keep = {};  // activations that the layers of this rank's last microbatch kept
  double metric(ops::LossMetric m) const { return metrics[static_cast<size_t>(m)]; }
  // Weighted mean of a metric that is summed with the loss's token weights; 0 if no token has
  // weight.
  double mean(ops::LossMetric m) const { return total_weight > 0 ? metric(m) / total_weight : 0; }
};

class Assigner;           // src/train/memory/assignment.h
class GradientReduction;  // src/train/gradient_reduction.h
class MtpCopies;          // src/train/passes/mtp_copies.h
class ScoreExchange;      // src/train/score_exchange.h
class StepSums;           // src/train/step_sums.h
struct Assignment;
struct Operation;
struct TrainedStages;  // src/train/trained_stages.h

class Trainer {
 public:
  // `policy` must have gradients and hold the stages of `decoders`, those of this rank of
  // groups.pp; all are borrowed. `host` has all ranks; gradients and weights go through groups that
  // must be destroyed before the policy's memory (ProcessGrid). `temperature` divides the logits,
  // in training as in generation. `min_part_elements` is that of list_gradient_parts; 0:
  // choose_min_part_elements.
  Trainer(const StageDecoders& decoders, model::ParameterStore& policy, dist::Collective& host,
          const dist::Groups& groups, const TrainOptions& options,
          const OptimizerOptions& optimizer_options, float temperature, tensor::Device device,
          int64_t min_part_elements = 0);
  ~Trainer();

  // One optimizer step over all of `samples` (the global batch). `before_update`, if given, is
  // called on every rank when each owner has its reduced gradients, before clipping.
  // Collective.
  StepResult step(std::span<const Sample> samples, const StepLoss& loss, double learning_rate,
                  const std::function<void()>& before_update = {});

  // Log-probs (and entropies) of the responses under `weights`, for all samples on every rank.
  // `decoders` belong to these weights: the policy's own, or a frozen model's, which may have
  // another architecture with the same vocabulary. Collective.
  std::vector<TokenScores> compute_log_probs(const StageDecoders& decoders,
                                             const model::ParameterStore& weights,
                                             std::span<const Sample> samples);

  // 2-norm of the policy's weights. Call between steps, after at least one. Collective.
  double weight_norm();
  ShardedAdamW& optimizer();
  // Copies the first stage's embedding to the last stage's copy, as step() does; call it after
  // loading weights. Collective.
  void publish_embedding();
  // Encodes the policy's weights (model/encoding.h), as step() does; call it after the optimizer
  // has taken its masters from loaded weights, and after publish_embedding. With `result`, sets
  // fp8_changed and is collective.
  void encode_weights(StepResult* result = nullptr);
  // Zeroes all gradients, gaps between parameters included: the norm covers the whole buffer.
  void clear_gradients();
  // Gathers all reduced gradients into every rank's gradient buffer; after before_update.
  // Collective.
  void gather_gradients();
  // The memory of activations, and plans for it.
  ActivationMemory& memory() const { return *memory_; }
  ActivationPlans& plans() const { return *plans_; }

 private:
  // Returns StepSums::download(), and sets `keep` of the result.
  std::vector<double> run_microbatches(std::span<const Sample> samples,
                                       const Assignment& assignment, const StepLoss& loss,
                                       std::span<const Operation> operations, const SlotPlan& plan,
                                       StepResult& result);

  std::unique_ptr<TrainedStages> stages_;
  std::unique_ptr<ActivationMemory> memory_;
  std::unique_ptr<StepSums> sums_;
  std::unique_ptr<GradientReduction> reduction_;
  std::unique_ptr<MtpCopies> mtp_copies_;
  std::unique_ptr<ActivationPlans> plans_;
  std::unique_ptr<Assigner> assigner_;
  std::unique_ptr<ScoreExchange> score_exchange_;
  tensor::Buffer changed_;  // one i64, for encode_weights; empty without encoded weights
};

}  // namespace slimexx::train
