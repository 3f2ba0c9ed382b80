// Forward, loss and backward of one microbatch. In a planning context they measure memory.
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
  tensor::Tensor input;   // [own rows, H] from the previous stage; undefined with the embedding
  tensor::Tensor output;  // [own rows, H] after the stage's last layer
  tensor::Tensor dx;      // [own rows, H] gradient of the output, later of the stage's input
  model::Tape tape;
  model::HeadTape head_tape;
  tensor::Tensor log_probs, entropies;                   // [rows] for the loss
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
  // Called when all work that adds to the gradients of this stage (see list_gradient_parts) is
  // queued.
  std::function<void(int64_t stage)> stage_done = [](int64_t) {};
  std::function<void()> attention_next = [] {};  // see BackwardHooks
};

// Fills f.microbatch from samples[indices]; allocates f.input unless this stage has the embedding.
void start_microbatch(const Pass& p, std::span<const Sample> samples,
                      std::span<const int64_t> indices, InFlight& f);
// Allocates rows of the residual stream of f, for transfers between stages.
tensor::Tensor allocate_rows(const Pass& p, const InFlight& f);
// Computes f.output. With `keep`, f's tape gets the activations for backward that f.tape.keep
// selects.
void run_layers(const Pass& p, InFlight& f, bool keep);
// Computes log-probs and entropies, on a stage with the head.
void run_head(const Pass& p, InFlight& f, bool keep);

// Adds to `metrics` and fills the gradients of the log-probs (and of the entropies, if the loss
// uses them). `weights` as token_weights returns them.
void run_loss(const Pass& p, std::span<const Sample> samples, std::span<const int64_t> indices,
              std::span<const std::vector<float>> weights, const ops::PolicyLossOptions& options,
              tensor::Tensor metrics, InFlight& f);

// In place: f.dx is the gradient of the output on entry (on a stage with the head, run_loss gave
// the gradients instead) and of the input on return. With `accumulate`, weight gradients are added
// to those of earlier microbatches of the step; otherwise they are overwritten. If `deferred` is
// given, it receives the products of weight gradients of layers; those of experts and of the head
// run immediately.
void run_backward(const Pass& p, const model::ModelParameters& gradients, InFlight& f,
                  bool accumulate, const StageHooks& hooks = {},
                  const model::RouterBalances& routers = {},
                  ops::DeferredProducts* deferred = nullptr);

// Token weights: the loss is their scalar product with the token losses. They do not depend on
// packing or ranks.
std::vector<std::vector<float>> token_weights(std::span<const Sample> samples,
                                              const StepLoss& loss);
// The exact sum of the token weights: 1 if every sample has a token to train and no divisor is
// given.
double sum_token_weights(std::span<const Sample> samples, const StepLoss& loss);

}  // namespace slimexx::train
