#include "rl/config/run_config_bounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace slimexx::rl {

void check_bounds(config::Config& config, const RunConfig& run) {
  const RlOptions& rl = run.rl;
  if (rl.use_tis && rl.tis_clip_low > rl.tis_clip) {
    config.add_fault("rl.tis_clip_low",
                     fmt::format("is {}, above rl.tis_clip {}", rl.tis_clip_low, rl.tis_clip),
                     "lower it");
  }
  if (rl.overlong_buffer_len > run.rollout.rollout_max_response_len) {
    config.add_fault("rl.overlong_buffer_len",
                     fmt::format("is {}, above rollout.rollout_max_response_len {}",
                                 rl.overlong_buffer_len, run.rollout.rollout_max_response_len),
                     "lower it");
  }
  const auto& epochs = run.rollout.num_epoch;
  if (run.is_sft() && epochs && config.is_set("train.num_sft_epochs") &&
      *epochs != run.train.num_sft_epochs)
    config.add_fault(
        "rollout.num_epoch",
        fmt::format("is {}, and train.num_sft_epochs is {}", *epochs, run.train.num_sft_epochs),
        "keep one");
  if (rl.per_token_loss && rl.loss_token_divisor)
    config.add_fault("rl.loss_token_divisor", "and per_token_loss are both set", "keep one");
  const std::string& schedule = run.train.pipeline_schedule;
  if (schedule != "1f1b" && run.parallel.pipeline_model_parallel_size <= 1)
    config.add_fault("train.pipeline_schedule",
                     fmt::format("is {}, but there is only one pipeline stage", schedule),
                     "leave it out, or raise parallel.pipeline_model_parallel_size");
}

void check_trained(config::Config& config, const train::TrainOptions& o) {
  if (o.enable_mtp_training && o.mtp_num_layers == 0)
    config.add_fault("train.enable_mtp_training", "is true, and train.mtp_num_layers is 0",
                     "set it to the number of layers to train: most checkpoints have 1");
  constexpr const char* kFrozen = "train.freeze_params_name_list";
  constexpr const char* kTrained = "train.only_train_params_name_list";
  if (!o.freeze_params_name_list.empty() && !o.only_train_params_name_list.empty())
    config.add_fault(kTrained, "and freeze_params_name_list are both set", "keep one");
  for (const auto& [key, patterns] :
       {std::pair{kFrozen, &o.freeze_params_name_list}, {kTrained, &o.only_train_params_name_list}})
    if (std::ranges::count(*patterns, "") > 0)
      config.add_fault(key, "holds an empty text", "remove it");
}

void check_schedule(config::Config& config, const train::OptimizerOptions& o) {
  if (o.lr_warmup_fraction && o.lr_warmup_iters > 0)
    config.add_fault("optimizer.lr_warmup_fraction", "and lr_warmup_iters are both set",
                     "keep one");
  if (o.lr_warmup_init > o.lr)
    config.add_fault("optimizer.lr_warmup_init",
                     fmt::format("is {}, above lr {}", o.lr_warmup_init, o.lr), "lower it");
  if (o.lr_decay_style == "constant") return;
  if (o.min_lr > o.lr)
    config.add_fault("optimizer.min_lr",
                     fmt::format("is {}, above optimizer.lr {}", o.min_lr, o.lr), "lower it");
  if (o.lr_decay_iters && *o.lr_decay_iters <= o.lr_warmup_iters) {
    config.add_fault("optimizer.lr_decay_iters",
                     fmt::format("is {}, and the warm-up alone takes lr_warmup_iters {}",
                                 *o.lr_decay_iters, o.lr_warmup_iters),
                     "raise it, or leave it out");
  }
  if (o.lr_decay_style != "WSD") return;
  if (!o.lr_wsd_decay_iters)
    config.add_fault("optimizer.lr_wsd_decay_iters", "is missing, and lr_decay_style is WSD",
                     "set it to the number of steps of the final decay");
  if (o.lr_decay_iters && o.lr_wsd_decay_iters.value_or(0) > *o.lr_decay_iters)
    config.add_fault(
        "optimizer.lr_wsd_decay_iters",
        fmt::format("is {}, above lr_decay_iters {}", *o.lr_wsd_decay_iters, *o.lr_decay_iters),
        "lower it");
}

}  // namespace slimexx::rl
