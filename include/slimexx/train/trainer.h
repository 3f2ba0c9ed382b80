// The trainer: packs samples into microbatches, runs forward, loss and backward over them, reduces
// the gradients and updates the weights. All ranks hold all samples of a step and make the same
// calls. Each runs its own microbatches; all run equally many, of which some may be empty. One
// thread.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "slimexx/dist/groups.h"
#include "slimexx/dist/peer_memory.h"
#include "slimexx/model/decoder.h"
#include "slimexx/ops/policy_loss.h"
#include "slimexx/train/optimizer.h"
#include "slimexx/train/options.h"
#include "slimexx/train/packing.h"
#include "slimexx/train/router_load.h"
#include "slimexx/train/scorer.h"
#include "slimexx/train/stage_decoders.h"

namespace slimexx::train {

struct StepLoss {
  ops::PolicyLossOptions policy;
  bool per_token_loss = false;  // divide by the step's response tokens, not per sample
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
  double metric(ops::LossMetric m) const { return metrics[static_cast<size_t>(m)]; }
  // Weighted mean of a metric that is summed with the loss's token weights; 0 if no token has
  // weight.
  double mean(ops::LossMetric m) const { return total_weight > 0 ? metric(m) / total_weight : 0; }
};

// Activation memory with the largest microbatches in flight, everything else in the arena included.
struct ActivationBytes {
  int64_t least = 0;  // layers keep as little as with recompute_granularity: full
  int64_t most = 0;   // layers keep everything; more memory would be unused
  // Parts of `least` with several microbatches in flight: `kept` per microbatch for backward, and
  // `scratch` of the running operation, shared by all.
  int64_t in_flight = 1, kept = 0, scratch = 0;
  // Operands of deferred weight gradients: `deferred` bytes for each of num_deferred microbatches.
  int64_t num_deferred = 0, deferred = 0;
};

// Whose sizes a planning context measures. The rank with the most rows need not take the most
// memory: a head cuts many rows into chunks, and keeps the logits of fewer rows whole.
enum class MeasuredRank {
  kLargest,  // the largest sizes of any tp and cp rank, for a plan that holds on all of them
  kOwn,      // those of this rank
};

struct MtpWork;     // mtp_pass.h
struct StageChunk;  // executor.h
struct Slot;
struct SlotBytes;
struct SlotCounts;
struct SlotPlan;
struct ScoringWork;    // scoring.h
struct PipelineShape;  // schedule.h
struct Operation;
class StepRouters;      // step_routers.h
class CopiedGradients;  // copied_gradients.h
class MtpCopies;        // mtp_copies.h

// Default of train.max_logits_gib, in bytes.
int64_t default_max_logits_bytes(tensor::Device device);

class Trainer {
 public:
  // `policy` must have gradients and hold the stages of `decoders`, those of this rank of
  // groups.pp; all are borrowed. `host` has all ranks; gradients and weights go
  // through groups that must end before the memory of the policy does (ProcessGrid).
  // `temperature` divides the logits, in training as in generation. `min_part_elements` is that of
  // list_gradient_parts; 0: choose_min_part_elements.
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
  double weight_norm() { return optimizer_.weight_norm(context()); }
  ShardedAdamW& optimizer() { return optimizer_; }
  // Copies the first stage's embedding to the last stage's copy, as after every step; call it after
  // loading weights. Collective.
  void publish_embedding();
  // Zeroes all gradients, gaps between parameters included: the norm covers the whole buffer.
  void clear_gradients();
  // Gathers all reduced gradients into every rank's gradient buffer; after before_update.
  // Collective.
  void gather_gradients();
  int64_t memory_bytes() const { return arena_.capacity_bytes(); }
  // High-water mark of steps and scoring so far.
  int64_t used_bytes() const;
  // Upper bound on activation memory if no sequence is longer than `longest_sequence` tokens and no
  // microbatch has more than `num_samples` samples. With recompute_granularity none or full,
  // `least` and `most` are equal.
  ActivationBytes plan_activations(int64_t longest_sequence, int64_t num_samples) const;
  // The same for compute_log_probs, of the policy or of another model.
  int64_t plan_scoring(int64_t longest_sequence, int64_t num_samples) const {
    return plan_scoring(decoders_, policy_, longest_sequence, num_samples);
  }
  int64_t plan_scoring(const StageDecoders& decoders, const model::ParameterStore& weights,
                       int64_t longest_sequence, int64_t num_samples) const;
  // Memory of forward, loss and backward with microbatches of `samples` in all slots, if layers
  // keep activations as `keep` says.
  int64_t plan_microbatch(std::span<const Sample> samples, model::KeepPlan keep,
                          MeasuredRank measured = MeasuredRank::kLargest) const;
  // From now on activations live in `memory` [bytes] U8 and never grow: each microbatch keeps what
  // fits (recompute_granularity auto). A microbatch that needs more is split by samples, which
  // changes only the order of sums; a single sample that needs more throws Error(kEnvironment) on
  // all ranks. The owner must not use the memory during a call of this trainer; its content is
  // undefined afterwards. Without this call the arena grows with the microbatches, and auto keeps
  // everything. Ranks that compute a microbatch together keep the same activations: what fits on
  // all of them. `memory` must begin a Buffer: ranks that can reach each other's memory then
  // exchange rows by kernels. Collective over the groups of a model replica.
  void borrow_memory(tensor::Tensor memory);
  // Call after a failure, before anything waits for the device: ends kernels that wait for ranks
  // that are gone. No step may follow.
  void leave_ranks();
  // Overrides train.max_logits_gib. Another limit changes the rows per chunk of logits, and with
  // that the last bits of the head's gradient.
  void limit_logits(int64_t max_logits_bytes);
  int64_t max_logits_bytes() const { return head_options_.max_logits_bytes; }
  // Activations that the layers of the last microbatch kept.
  model::KeepPlan last_keep() const { return keep_; }

 private:
  struct Assignment {
    Bins microbatches;             // sample indices; microbatches added by even_out are empty
    int64_t num_packed = 0;        // microbatches with samples
    int64_t room_tokens = 0;       // capacity of those
    Bins mine;                     // this rank's microbatches; equally many on every rank
    std::vector<int64_t> numbers;  // indices of `mine` among all microbatches
    std::vector<int> owner;        // rank of each microbatch
  };
  ops::Context context();
  PipelineShape shape(size_t num_chunks) const;
  Bins pack(std::span<const Sample> samples) const;
  Assignment assign(const StageDecoders& decoders, std::span<const Sample> samples,
                    Bins microbatches) const;
  // Packs samples and assigns the microbatches. In planned memory, splits by samples those that
  // `reserve` finds too large until all fit; a single sample that does not fit throws AgreedError.
  // Collective in planned memory.
  SlotPlan assign_fitting(const StageDecoders& decoders, std::span<const Sample> samples,
                          const std::function<SlotPlan(const Assignment&)>& reserve,
                          Assignment& assignment);
  bool split_too_large(std::span<const Sample> samples, const Assignment& assignment,
                       const SlotPlan& plan, Bins& microbatches);
  std::vector<std::vector<Sample>> largest_microbatches(int64_t longest_sequence,
                                                        int64_t num_samples) const;
  SlotBytes measure_step(std::span<const Sample> samples, std::span<const int64_t> indices,
                         model::KeepPlan keep, const SlotCounts& counts,
                         MeasuredRank measured) const;
  std::vector<Slot> share_arena(const SlotPlan& plan);
  SlotCounts most_counts() const;
  int64_t measure_update() const;
  // Of all cp ranks that share a microbatch.
  int64_t max_microbatch_tokens() const { return options_.max_tokens_per_gpu * groups_.cp.size(); }
  std::optional<model::KeepPlan> fixed_keep() const;
  model::KeepPlan choose_keep(size_t chunk, std::span<const Sample> samples,
                              std::span<const int64_t> indices, int64_t more_bytes) const;
  std::vector<model::KeepPlan> choose_keeps(std::span<const Sample> samples,
                                            const Assignment& assignment,
                                            const SlotPlan& plan) const;
  int64_t most_ep_rows(int64_t num_tokens) const;
  SlotPlan reserve_for_step(std::span<const Sample> samples, const Assignment& assignment,
                            const SlotCounts& counts);
  SlotPlan reserve_for_scoring(const ScoringWork& work, const Assignment& assignment,
                               size_t num_slots);
  void clear_before_backward();
  void finish_stage(const ops::Context& ctx, int64_t stage);
  void start_final_parts(const ops::Context& ctx);
  void sum_tied_gradients(const ops::Context& ctx) const;
  MtpWork mtp_work(std::span<const Sample> samples) const;
  // Returns sums of kNumLossMetrics metrics for the loss and for each MTP layer, then the routers'.
  std::vector<double> run_microbatches(std::span<const Sample> samples,
                                       const Assignment& assignment, const StepLoss& loss,
                                       std::span<const Operation> operations, const SlotPlan& plan);

  const StageDecoders decoders_;
  const model::ModelSpec& spec_;  // the whole model
  std::vector<StageChunk> chunks_;
  model::ParameterStore& policy_;
  dist::Collective& host_;
  dist::Groups groups_;
  dist::PeerMemories peer_memories_;  // on arena_
  // All ranks of a model replica have its losses and log-probs; only its reporter's count.
  bool is_reporter_;
  std::vector<int> reporters_;  // ranks of `host`, by dp rank; filled on first use
  TrainOptions options_;
  model::HeadOptions head_options_;
  tensor::Device device_;
  tensor::Arena arena_;
  // Borrow from arena_ during a step or a scoring pass; a single slot uses arena_ itself.
  tensor::Arena scratch_arena_;
  std::vector<tensor::Arena> slot_arenas_, deferred_arenas_;
  // The first and the last stage, if the last one holds a copy of the embedding; otherwise null.
  std::unique_ptr<dist::Collective> embedding_ranks_;
  tensor::Tensor embedding_, embedding_gradient_;  // of embedding_ranks_
  bool is_planned_ = false;                        // the arena's size is final
  bool has_split_ = false;                         // a microbatch did not fit
  model::KeepPlan keep_ = {};
  int64_t most_tokens_ = 0;  // in a microbatch of any rank, in the last step or scoring
  const int64_t num_trained_mtp_;
  tensor::Buffer metrics_;  // [1 + num_trained_mtp_, kNumLossMetrics] f64, sums of one step
  std::unique_ptr<StepRouters> routers_;
  std::unique_ptr<CopiedGradients> copied_gradients_;
  std::unique_ptr<MtpCopies> mtp_copies_;
  std::vector<GradientPart> parts_;
  size_t num_started_parts_ = 0;  // in this step, as last_stage_done_
  int64_t last_stage_done_ = -1;
  ShardedAdamW optimizer_;
};

}  // namespace slimexx::train
