// The loss of the trained MTP layers on a microbatch, and the gradients of their parameters. The
// tensors that they read from the model count as constants, so nothing else gets a gradient.
// Forward, loss and backward are one pass between the model's last layer and its head; it frees its
// memory before the head keeps logits.
//
// Legend as in microbatch.h; depth k = 0, 1, ... counts MTP layers.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "train/passes/passes.h"

namespace slimexx::train {

// Inputs and targets of depth k for packed sequences. Nothing crosses from one sequence to the
// next.
struct MtpLabels {
  std::vector<int32_t> tokens;  // [T], rolled left by k + 1, with zeros after the end of a sequence
  // Row i predicts token i + k + 2. Only rows whose target is a response token inside the loss mask
  // are listed.
  std::vector<int32_t> rows, targets;
};
MtpLabels list_mtp_labels(std::span<const Sample> samples, std::span<const int64_t> indices,
                          int64_t depth);

// The share of one cp rank. Labels come from whole samples, so a token after the end of a chunk
// needs no exchange.
MtpLabels take_share(const MtpLabels& labels, const model::ContextShards& token_shards, int rank);

// The inputs that the passes of all microbatches of a step share.
struct MtpWork {
  std::vector<int64_t> num_labels;  // by depth, over all samples of the step, at least 1
  float factor = 0;                 // scales the mean loss of each layer
  // By depth [kNumLossMetrics] F64, added to: kLoss becomes the mean over the step's labels.
  std::vector<tensor::Tensor> metrics = {};
};
// Leaves `metrics` empty. Each layer gets an equal part of `scaling_factor`.
MtpWork make_mtp_work(std::span<const Sample> samples, int64_t num_layers, double scaling_factor);

// `x` [T,H] is the residual stream after the model's last layer, `microbatch` holds
// samples[indices]. `accumulate` as in run_backward.
void run_mtp(const Pass& p, const model::ModelParameters& gradients,
             std::span<const Sample> samples, std::span<const int64_t> indices,
             const Microbatch& microbatch, tensor::Tensor x, const MtpWork& work, bool accumulate);

}  // namespace slimexx::train
