// The loss of the trained MTP layers on a microbatch, and the gradients of their parameters. All
// that they read of the model counts as constant, so nothing else gets a gradient, and forward,
// loss and backward are one pass between the model's last layer and its head: its memory is free
// again before the head keeps logits.
//
// Legend as in microbatch.h; depth k = 0, 1, ... counts MTP layers.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "train/passes/passes.h"

namespace slimexx::train {

// What depth k reads and predicts, of packed sequences. Nothing crosses from one to the next.
struct MtpLabels {
  std::vector<int32_t> tokens;  // [T] rolled left by k + 1; zeros behind a sequence's end
  // Row i predicts token i + k + 2. Those are listed whose token is a response token that the loss
  // mask has.
  std::vector<int32_t> rows, targets;
};
MtpLabels list_mtp_labels(std::span<const Sample> samples, std::span<const int64_t> indices,
                          int64_t depth);

// Those of a rank of context parallelism. Labels come from whole samples, so a token that stands
// behind the end of a chunk needs no exchange.
MtpLabels take_share(const MtpLabels& labels, const model::ContextShards& token_shards, int rank);

// What the pass needs of the step.
struct MtpWork {
  std::vector<int64_t> num_labels;  // by depth, of all samples of the step, and 1 at least
  float factor = 0;                 // of the mean loss of each layer
  // By depth [kNumLossMetrics] F64, added to: kLoss becomes the mean over the step's labels.
  std::vector<tensor::Tensor> metrics = {};
};
// Without metrics. The layers share `scaling_factor` evenly.
MtpWork make_mtp_work(std::span<const Sample> samples, int64_t num_layers, double scaling_factor);

// `x` [T,H] is the residual stream behind the model's last layer, `microbatch` that of
// samples[indices]. `accumulate` as of run_backward.
void run_mtp(const Pass& p, const model::ModelParameters& gradients,
             std::span<const Sample> samples, std::span<const int64_t> indices,
             const Microbatch& microbatch, tensor::Tensor x, const MtpWork& work, bool accumulate);

}  // namespace slimexx::train
