// The `train` and `optimizer` sections of the configuration.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "slimexx/config/config.h"

namespace slimexx::train {

inline constexpr int64_t kMaxSamples = int64_t{1} << 24;  // of a rollout, which is held in memory

struct TrainOptions {
  std::optional<int64_t> global_batch_size;  // samples of one optimizer step
  std::optional<int64_t> num_steps_per_rollout;
  bool use_dynamic_batch_size = true;
  int64_t max_tokens_per_gpu = 4608;
  int64_t micro_batch_size = 1;
  bool balance_data = true;
  std::string recompute_granularity = "auto";
  std::string pipeline_schedule = "1f1b";
  std::string loss_type = "policy_loss";
  std::optional<double> max_logits_gib;  // of the head; see default_max_logits_bytes
  int64_t max_skipped_steps = 10;
  int64_t num_sft_epochs = 1;
  int64_t mtp_num_layers = 0;
  bool enable_mtp_training = false;
  double mtp_loss_scaling_factor = 0.2;
  double moe_router_bias_update_rate = 0;
  double moe_aux_loss_coeff = 0, moe_z_loss_coeff = 0;
  std::vector<std::string> freeze_params_name_list, only_train_params_name_list;
  int64_t num_trained_mtp() const { return enable_mtp_training ? mtp_num_layers : 0; }
};

struct OptimizerOptions {
  std::string optimizer = "adam";
  double lr = 1e-6;
  double min_lr = 0;
  std::string lr_decay_style = "constant";
  int64_t lr_warmup_iters = 0;
  double lr_warmup_init = 0;
  std::optional<double> lr_warmup_fraction;  // share of the decay steps; replaces lr_warmup_iters
  std::optional<int64_t> lr_decay_iters;
  std::string lr_wsd_decay_style = "exponential";
  std::optional<int64_t> lr_wsd_decay_iters;
  double weight_decay = 0.01;
  double adam_beta1 = 0.9, adam_beta2 = 0.98, adam_eps = 1e-8;
  double clip_grad = 1.0;               // 0: off
  std::string state_dtype = "float32";  // of both moments: float32 or bfloat16
  bool optimizer_cpu_offload = false;   // state in host memory
  bool reset_optimizer_states = false;  // at every rollout
};

void bind(config::Binder& binder, TrainOptions& options);
void bind(config::Binder& binder, OptimizerOptions& options);

// Number of warm-up steps of a schedule that ends at `decay_steps`. With lr_warmup_fraction it can
// be fractional.
double warmup_steps(const OptimizerOptions& options, int64_t decay_steps);

// Learning rate of optimizer step `step` (from 0) by the schedule of Megatron
// (OptimizerParamScheduler): linear warm-up, in which step k of W uses the k-th of W equal parts
// of the way from lr_warmup_init to lr; then by lr_decay_style down to min_lr at `decay_steps`.
double learning_rate(const OptimizerOptions& options, int64_t step, int64_t decay_steps);

}  // namespace slimexx::train
