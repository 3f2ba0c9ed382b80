// Forward, loss and backward of one microbatch. In a planning context they measure what
// they take.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "slimexx/model/decoder.h"
#include "slimexx/ops/policy_loss.h"
#include "slimexx/train/trainer.h"
#include "train/passes/microbatch.h"

namespace slimexx::train {

// A microbatch between its forward and its backward.
struct InFlight {
  Microbatch microbatch;
  tensor::Tensor input;   // [own rows, H] from the stage before; undefined with the embedding
  tensor::Tensor output;  // [own rows, H] behind the stage's last layer
  tensor::Tensor dx;      // [own rows, H] gradient of the output, then of the stage's input
  model::Tape tape;
  model::HeadTape head_tape;
  tensor::Tensor log_probs, entropies;                   // [rows] of the loss
  tensor::Tensor own_entropies, dlog_probs, dentropies;  // [rows] of this rank
  tensor::Arena::Mark mark = 0;
};

struct Pass {
  const model::Decoder& decoder;
  const model::ModelParameters& weights;
  const model::HeadOptions& head;
  ops::Context ctx;
  MeasuredRank measured = MeasuredRank::kLargest;  // in a planning context
};

struct StageHooks {
  // All that adds to the gradients of this stage of list_gradient_parts is queued.
  std::function<void(int64_t stage)> stage_done = [](int64_t) {};
  std::function<void()> attention_next = [] {};  // BackwardHooks'
};

// f.microbatch of samples[indices], and f.input, to be filled, where the stage before has it.
void start_microbatch(const Pass& p, std::span<const Sample> samples,
                      std::span<const int64_t> indices, InFlight& f);
// Rows of the residual stream of f, for what passes between stages.
tensor::Tensor allocate_rows(const Pass& p, const InFlight& f);
// f.output. With `keep` what backward needs is on f's tape, at the levels of f.tape.keep.
void run_layers(const Pass& p, InFlight& f, bool keep);
// Log-probs and entropies, on a stage with the head.
void run_head(const Pass& p, InFlight& f, bool keep);

// Adds to `metrics` and fills the gradients of the log-probs (and of the entropies, where the loss
// has them). `weights` as token_weights gives them.
void run_loss(const Pass& p, std::span<const Sample> samples, std::span<const int64_t> indices,
              std::span<const std::vector<float>> weights, const ops::PolicyLossOptions& options,
              tensor::Tensor metrics, InFlight& f);

// From f.dx, or on a stage with the head from the gradients of run_loss, to f.dx. `accumulate`: to
// the gradients that earlier microbatches of the step left; else matrices are
// written, whatever they hold. Products of the gradients of layers' matrices are left in
// `deferred`, where it is given: of those of experts, and of the head, backward runs all.
void run_backward(const Pass& p, const model::ModelParameters& gradients, InFlight& f,
                  bool accumulate, const StageHooks& hooks = {},
                  const model::RouterBalances& routers = {},
                  ops::DeferredProducts* deferred = nullptr);

// Token weights: the loss is their scalar product with the token losses, whatever the packing and
// the ranks.
std::vector<std::vector<float>> token_weights(std::span<const Sample> samples,
                                              const StepLoss& loss);
// Their sum without rounding: 1 where every sample has a token to train and no divisor is given.
double sum_token_weights(std::span<const Sample> samples, const StepLoss& loss);

}  // namespace slimexx::train
