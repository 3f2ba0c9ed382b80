// The trainer: packs samples into microbatches, runs forward, loss and backward over them, reduces
// the gradients and updates the weights. All ranks hold all samples of a step and call alike; each
// runs the microbatches that are its own. One thread.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "slimexx/dist/communicator.h"
#include "slimexx/model/transformer.h"
#include "slimexx/ops/policy_loss.h"
#include "slimexx/train/optimizer.h"
#include "slimexx/train/options.h"
#include "slimexx/train/packing.h"

namespace slimexx::train {

// What training needs of a sample. The response is the last response_length tokens, 1 <=
// response_length < tokens.size(); per-token vectors are [response_length], or empty where the loss
// does not want them.
struct TrainSample {
  std::vector<int32_t> tokens;
  int64_t response_length = 0;
  std::vector<uint8_t> loss_mask;
  std::vector<float> advantages = {}, old_log_probs = {}, ref_log_probs = {},
                     rollout_log_probs = {};
};

struct TokenScores {
  std::vector<float> log_probs, entropies;  // [response_length]
};

struct StepLoss {
  ops::PolicyLossOptions policy;
  bool per_token_loss = false;  // divide by the step's response tokens, not per sample
};

struct StepResult {
  double metrics[ops::kNumLossMetrics] = {};  // over all ranks
  double gradient_norm = 0;                   // before clipping
  bool skipped = false;                       // NaN or Inf gradients: the weights are as before
  int64_t num_microbatches = 0, num_tokens = 0;
  double flops = 0;  // forward and backward of the step, all ranks
  double metric(ops::LossMetric m) const { return metrics[static_cast<size_t>(m)]; }
};

// When a part's gradients go, in the last microbatch: the same bits either way.
enum class ExchangeStart : uint8_t {
  kBehindBackward,   // all of them
  kAtOnce,           // as soon as it is final
  kBesideAttention,  // with the next layer's attention, which it slows least (BackwardHooks)
};

// How ranks exchange gradients. Only the cut into parts may move a bit, and only the norm's last.
struct GradientExchange {
  std::unique_ptr<dist::DeviceCommunicator> communicator;  // the optimizer's; see there
  int64_t min_part_elements = 0;  // of list_gradient_parts; 0: choose_min_part_elements
  ExchangeStart start = ExchangeStart::kBesideAttention;
};

class Trainer {
 public:
  // `policy` must have gradients; all are borrowed. `temperature` divides the logits, in training
  // as in generation.
  Trainer(const model::Transformer& transformer, model::ParameterStore& policy,
          dist::Communicator& communicator, const TrainOptions& options,
          const OptimizerOptions& optimizer_options, float temperature, tensor::Device device,
          GradientExchange exchange = {});
  ~Trainer();

  // One optimizer step over all of `samples` (the global batch). `before_update`, if given, is
  // called on every rank when the reduced gradients stand with their owners, before clipping.
  // Collective.
  StepResult step(std::span<const TrainSample> samples, const StepLoss& loss, double learning_rate,
                  const std::function<void()>& before_update = {});

  // Log-probs (and entropies) of the responses under `weights`, for all samples on every rank.
  // `transformer` is the one of these weights: the policy's own, or a reference's, which may have
  // another architecture on the same vocabulary. Collective.
  std::vector<TokenScores> compute_log_probs(const model::Transformer& transformer,
                                             const model::ParameterStore& weights,
                                             std::span<const TrainSample> samples);

  ShardedAdamW& optimizer() { return optimizer_; }
  // After before_update: every rank's gradient buffer holds all reduced gradients. Collective.
  void gather_gradients();
  int64_t memory_bytes() const { return arena_.capacity_bytes(); }
  // Activations live in `memory` [bytes] U8 from now on, if that is more than there is. The lender
  // leaves it alone while a call of this trainer runs, and expects no content afterwards.
  void borrow_memory(tensor::Tensor memory);

 private:
  struct Assignment {
    Bins microbatches;          // sample indices
    std::vector<int64_t> mine;  // microbatch indices of this rank
    std::vector<int> owner;     // rank of each microbatch
  };
  tensor::Stream stream();
  Assignment assign(const model::Transformer& transformer,
                    std::span<const TrainSample> samples) const;
  void reserve_for_step(std::span<const TrainSample> samples, const Assignment& assignment);
  void reserve_for_scoring(const model::Transformer& transformer,
                           const model::ModelParameters& weights,
                           std::span<const TrainSample> samples, const Assignment& assignment);
  void clear_gradients(bool all);
  void finish_stage(tensor::Stream stream, int64_t stage);
  void start_final_parts(tensor::Stream stream);
  void run_schedule(std::span<const TrainSample> samples, const Assignment& assignment,
                    const StepLoss& loss, std::span<const std::vector<float>> weights,
                    std::span<double> metrics);

  const model::Transformer& transformer_;
  model::ParameterStore& policy_;
  dist::Communicator& communicator_;
  TrainOptions options_;
  model::HeadOptions head_options_;
  tensor::Device device_;
  model::ModelParameters weights_, gradients_, fresh_gradients_;
  ExchangeStart exchange_start_;
  tensor::Arena arena_;
  tensor::Buffer metrics_;  // [kNumLossMetrics] f64, sums of one step
  std::vector<GradientPart> parts_;
  size_t num_started_parts_ = 0;  // of this step, as is the stage
  int64_t last_stage_done_ = -1;
  ShardedAdamW optimizer_;  // last: see its exchange
};

}  // namespace slimexx::train
