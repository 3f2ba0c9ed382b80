// The `train` and `optimizer` sections of the configuration.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "slimexx/config/config.h"

namespace slimexx::train {

struct TrainOptions {
  std::optional<int64_t> global_batch_size;  // samples of one optimizer step
  std::optional<int64_t> num_steps_per_rollout;
  bool use_dynamic_batch_size = true;
  int64_t max_tokens_per_gpu = 4608;
  int64_t micro_batch_size = 1;
  bool balance_data = true;
  std::string recompute_granularity = "none";
  std::string loss_type = "policy_loss";
  double max_logits_gib = 0.25;
  int64_t max_skipped_steps = 10;
  int64_t num_sft_epochs = 1;
};

struct OptimizerOptions {
  std::string optimizer = "adam";
  double lr = 1e-6;
  double min_lr = 0;
  std::string lr_decay_style = "constant";
  int64_t lr_warmup_iters = 0;
  std::optional<int64_t> lr_decay_iters;
  double weight_decay = 0.01;
  double adam_beta1 = 0.9, adam_beta2 = 0.98, adam_eps = 1e-8;
  double clip_grad = 1.0;               // 0: off
  std::string state_dtype = "float32";  // of both moments: float32 or bfloat16
};

void bind(config::Binder& binder, TrainOptions& options);
void bind(config::Binder& binder, OptimizerOptions& options);

// Learning rate of optimizer step `step` (0-based): linear warm-up over lr_warmup_iters steps (step
// k of it uses lr * (k+1) / warm-up), then constant, linear or cosine down to min_lr at
// `decay_steps`.
double learning_rate(const OptimizerOptions& options, int64_t step, int64_t decay_steps);

}  // namespace slimexx::train
