#include "slimexx/train/options.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace slimexx::train {
namespace {

constexpr double kMaxFactor = 1e6;        // a product with it stays finite in float32
constexpr double kMaxInt32 = 2147483647;  // upper bound on counts: products stay far below 2^63
constexpr double kMaxRate = 1e30;  // finite in float32, and large enough to try diverging rates

void bind_mtp(config::Binder& b, TrainOptions& o) {
  b.field("mtp_num_layers", o.mtp_num_layers,
          {.doc = "Number of the model's multi-token prediction layers to train, from the first "
                  "one on. No effect without enable_mtp_training.",
           .min = 0,
           .max = 16,
           .when = "enable_mtp_training",
           .may_idle = true});
  b.field(
      "enable_mtp_training", o.enable_mtp_training,
      {.doc = "Train multi-token prediction layers with cross-entropy on the tokens of the loss "
              "mask. The rest of the model gets no gradient from this loss, but the gradient norm "
              "that clip_grad uses includes these layers. If a trained layer has copies of the "
              "embedding and the head, they stay equal to the model's, provided they were equal at "
              "the start. Layers that are not trained are exported as loaded."});
  b.field("mtp_loss_scaling_factor", o.mtp_loss_scaling_factor,
          {.doc = "Weight of the multi-token prediction loss (the mean over layers of the mean "
                  "over tokens).",
           .min = 0,
           .max = kMaxFactor,
           .when = "enable_mtp_training"});
}

void bind_routers(config::Binder& b, TrainOptions& o) {
  b.field("moe_router_bias_update_rate", o.moe_router_bias_update_rate,
          {.doc = "After each optimizer step the router's correction bias of an expert rises by "
                  "this amount if the expert got fewer tokens than the mean, and falls by it if "
                  "the expert got more (DeepSeek-V3, GLM). 0: the bias stays as loaded.",
           .min = 0,
           .max = kMaxFactor});
  b.field("moe_aux_loss_coeff", o.moe_aux_loss_coeff,
          {.doc = "Weight of train/moe_aux_loss in the gradient: per layer with experts, the load "
                  "balancing loss per sequence, averaged over sequences (Megatron's seq_aux_loss).",
           .min = 0,
           .max = kMaxFactor});
  b.field(
      "moe_z_loss_coeff", o.moe_z_loss_coeff,
      {.doc =
           "Weight of train/moe_z_loss in the gradient: per layer with experts, logsumexp(router "
           "logits)^2, averaged over a sequence's tokens and then over sequences.",
       .min = 0,
       .max = kMaxFactor});
}

void bind_freezing(config::Binder& b, TrainOptions& o) {
  b.field("freeze_params_name_list", o.freeze_params_name_list,
          {.doc = "Regular expressions (syntax of Python and Perl). A tensor is frozen if one of "
                  "them matches a part of its name in the Hugging Face folder: no gradient, no "
                  "optimizer state, no weight decay, no share in the gradient norm. "
                  "moe_router_bias_update_rate still changes a router's correction bias."});
  b.field("only_train_params_name_list", o.only_train_params_name_list,
          {.doc = "Regular expressions as in freeze_params_name_list for the tensors to train; all "
                  "others are frozen. Cannot be combined with freeze_params_name_list."});
}

void bind_batch(config::Binder& b, TrainOptions& o) {
  b.field("global_batch_size", o.global_batch_size,
          {.unit = "samples",
           .doc = "Samples per optimizer step. If unset, it follows from rollout_batch_size * "
                  "n_samples_per_prompt = global_batch_size * num_steps_per_rollout; with "
                  "loss_type sft it is rollout_batch_size; with a loaded dump it is the dump's "
                  "samples / num_steps_per_rollout.",
           .min = 1,
           .max = kMaxSamples});
  b.field("num_steps_per_rollout", o.num_steps_per_rollout,
          {.unit = "steps",
           .doc = "Optimizer steps per rollout. If unset, it follows from global_batch_size, or is "
                  "1 if that is unset too.",
           .min = 1,
           .max = kMaxInt32});
  b.field("use_dynamic_batch_size", o.use_dynamic_batch_size,
          {.doc = "Pack samples into microbatches of at most max_tokens_per_gpu tokens (first "
                  "fit). A longer sample gets a microbatch of its own and is not cut. false: "
                  "micro_batch_size samples per microbatch."});
  b.field("max_tokens_per_gpu", o.max_tokens_per_gpu,
          {.unit = "tokens",
           .doc = "Capacity of a microbatch with use_dynamic_batch_size.",
           .min = 1,
           .max = kMaxInt32,
           .when = "use_dynamic_batch_size",
           .may_idle = true});
  b.field("micro_batch_size", o.micro_batch_size,
          {.unit = "samples",
           .doc = "Samples per microbatch without use_dynamic_batch_size.",
           .min = 1,
           .max = kMaxSamples,
           .when = "use_dynamic_batch_size is false"});
  b.field("balance_data", o.balance_data,
          {.doc = "Balance the FLOPs of the microbatches over ranks (Karmarkar-Karp). false: round "
                  "robin."});
}

}  // namespace

void bind(config::Binder& b, TrainOptions& o) {
  b.begin_section("train", "Batches, microbatches, recomputation, loss and what is trained.");
  bind_batch(b, o);
  b.field(
      "recompute_granularity", o.recompute_granularity,
      {.doc = "Activation checkpointing. none: layers keep all activations for backward. full: "
              "they keep their input, the attention output and the sum of the two, and recompute "
              "the rest. auto: on a GPU, keep what fits in the memory planned for activations; on "
              "the CPU, keep everything. All settings give bit-identical results.",
       .choices = {"auto", "none", "full"},
       .refused_choices = {{"selective", "auto decides per layer what fits in memory"}}});
  b.field("pipeline_schedule", o.pipeline_schedule,
          {.doc = "Pipeline schedule. 1f1b: one forward, one backward; interleaved if a rank has "
                  "several stages. zb_h1 (zero bubble): backward sends the gradient of its input "
                  "first, and weight gradients are computed when the stage would be idle; a rank "
                  "keeps their operands for up to one microbatch more than there are stages before "
                  "it. Weight gradients of experts and of the head are not deferred. Both give "
                  "bit-identical results.",
           .choices = {"1f1b", "zb_h1"},
           .slime = "-"});
  b.field("loss_type", o.loss_type,
          {.doc = "policy_loss: reinforcement learning on rollouts. sft: supervised fine-tuning, "
                  "cross-entropy on the assistant's tokens of conversations.",
           .choices = {"policy_loss", "sft"},
           .refused_choices = {{"sft_loss", "here it is sft"},
                               {"custom_loss",
                                "losses run on the device: "
                                "include/slimexx/kernels/token_loss.h"}}});
  b.field("max_logits_gib", o.max_logits_gib,
          {.unit = "GiB",
           .doc = "Memory for logits. If a microbatch's logits fit, they are kept for backward; "
                  "otherwise the head computes them in chunks. Unset: 0.25 on the CPU; on a GPU 8, "
                  "halved until the activations fit too. The number of chunks changes the last "
                  "bits of the head's gradient.",
           .min = 0,
           .max = 1e6,
           .min_exclusive = true,
           .slime = "-"});
  b.field("max_skipped_steps", o.max_skipped_steps,
          {.unit = "steps",
           .doc = "Maximum number of consecutive optimizer steps that may be skipped because of "
                  "NaN or Inf gradients; one more stops the run.",
           .min = 0,
           .max = kMaxInt32,
           .slime = "-"});
  b.field("num_sft_epochs", o.num_sft_epochs,
          {.unit = "epochs",
           .doc = "Passes over the data with loss_type sft, if rollout.num_epoch is unset.",
           .min = 1,
           .max = kMaxInt32,
           .slime = "num-epoch",
           .when = "loss_type sft, no num_rollout"});
  bind_mtp(b, o);
  bind_routers(b, o);
  bind_freezing(b, o);
  b.end_section();
}

void bind(config::Binder& b, OptimizerOptions& o) {
  b.begin_section("optimizer",
                  "AdamW with fp32 master weights, sharded over data-parallel ranks (ZeRO-1).");
  b.field("optimizer", o.optimizer,
          {.doc = "AdamW with decoupled weight decay.",
           .choices = {"adam"},
           .refused_choices = {{"sgd", "planned: other optimizers"},
                               {"adamw", "here it is adam; its decay is decoupled"}}});
  b.field("lr", o.lr, {.doc = "Peak learning rate.", .min = 0, .max = kMaxRate});
  b.field("min_lr", o.min_lr,
          {.doc = "Learning rate at the end of the decay.",
           .min = 0,
           .max = kMaxFactor,
           .when = "the rate decays"});
  b.field("lr_decay_style", o.lr_decay_style,
          {.doc = "Shape of the learning rate schedule after the warm-up, as in Megatron.",
           .choices = {"constant", "linear", "cosine", "inverse-square-root", "WSD"}});
  b.field("lr_warmup_iters", o.lr_warmup_iters,
          {.unit = "steps",
           .doc = "Optimizer steps of linear warm-up from lr_warmup_init to lr, counted from 0.",
           .min = 0,
           .max = kMaxInt32});
  b.field("lr_warmup_init", o.lr_warmup_init,
          {.doc = "Learning rate at the start of the warm-up; step k of W uses init + (lr - init) "
                  "* k / W.",
           .min = 0,
           .max = kMaxRate,
           .when = "a warm-up"});
  b.field(
      "lr_warmup_fraction", o.lr_warmup_fraction,
      {.doc = "Length of the warm-up as a fraction of lr_decay_iters, instead of lr_warmup_iters.",
       .min = 0,
       .max = 1});
  b.field(
      "lr_decay_iters", o.lr_decay_iters,
      {.unit = "steps",
       .doc =
           "Optimizer step at which the rate reaches min_lr. Default: the run's last step. If a "
           "resumed run has a different length, the default changes with it, and the log says so.",
       .min = 1,
       .max = kMaxInt32,
       .when = "the rate decays, or lr_warmup_fraction is set"});
  b.field("lr_wsd_decay_style", o.lr_wsd_decay_style,
          {.doc = "Shape of the final decay of WSD; the rate is constant before it.",
           .choices = {"exponential", "linear", "cosine", "minus_sqrt"},
           .when = "WSD"});
  b.field("lr_wsd_decay_iters", o.lr_wsd_decay_iters,
          {.unit = "steps",
           .doc = "Optimizer steps of the final decay of WSD; required with WSD.",
           .min = 1,
           .max = kMaxInt32,
           .when = "WSD"});
  b.field("weight_decay", o.weight_decay,
          {.doc = "Decoupled weight decay; one-dimensional parameters are exempt.",
           .min = 0,
           .max = kMaxFactor});
  b.field("adam_beta1", o.adam_beta1,
          {.doc = "Decay rate of the first moment.", .min = 0, .max = 0.999999});
  b.field("adam_beta2", o.adam_beta2,
          {.doc = "Decay rate of the second moment.", .min = 0, .max = 0.999999999});
  b.field("adam_eps", o.adam_eps,
          {.doc = "Added to the square root of the second moment.", .min = 1e-30, .max = 1});
  b.field("clip_grad", o.clip_grad,
          {.doc = "Clip gradients to this global L2 norm; 0: no clipping.", .min = 0});
  b.field("state_dtype", o.state_dtype,
          {.doc = "Data type of both moments: 8 bytes per parameter with float32, 4 with bfloat16. "
                  "The arithmetic of a step stays float32; bfloat16 rounds the moments to nearest "
                  "after it, so keep adam_beta1 and adam_beta2 at 0.996 or less. Checkpoints store "
                  "this type; a run can resume from either.",
           .choices = {"float32", "bfloat16"},
           .slime = "-"});
  b.field("optimizer_cpu_offload", o.optimizer_cpu_offload,
          {.doc = "Keep master weights and moments in host memory and update them there. Saves 12 "
                  "bytes per parameter on the GPU; results are bit-identical. Copies of gradients "
                  "and weights overlap with the updates."});
  b.field("reset_optimizer_states", o.reset_optimizer_states,
          {.doc = "Reset the moments and their bias correction at the start of every rollout."});
  b.end_section();
}

double warmup_steps(const OptimizerOptions& o, int64_t decay_steps) {
  if (o.lr_warmup_fraction) return *o.lr_warmup_fraction * static_cast<double>(decay_steps);
  return static_cast<double>(o.lr_warmup_iters);
}

namespace {

// Share of lr - min_lr left after the fraction `ratio` of WSD's decay phase.
double wsd_share(const std::string& style, double ratio) {
  if (style == "linear") return 1 - ratio;
  if (style == "cosine") return (1 + std::cos(std::numbers::pi * ratio)) / 2;
  if (style == "minus_sqrt") return 1 - std::sqrt(ratio);
  return 2 * std::pow(0.5, ratio) - 1;
}

}  // namespace

double learning_rate(const OptimizerOptions& o, int64_t step, int64_t decay_steps) {
  const double now = static_cast<double>(step), end = static_cast<double>(decay_steps);
  const double warmup = warmup_steps(o, decay_steps);
  if (warmup > 0 && now <= warmup)
    return o.lr_warmup_init + (o.lr - o.lr_warmup_init) * now / warmup;
  if (o.lr_decay_style == "constant") return o.lr;
  if (step > decay_steps || end <= warmup) return o.min_lr;
  if (o.lr_decay_style == "inverse-square-root")
    return std::max(o.min_lr, o.lr * std::sqrt(std::max(warmup, 1.0) / std::max(now, 1.0)));
  double share = 1;
  if (o.lr_decay_style == "WSD") {
    const double stretch = static_cast<double>(o.lr_wsd_decay_iters.value_or(0));
    if (now > end - stretch)
      share = wsd_share(o.lr_wsd_decay_style, (now - (end - stretch)) / stretch);
  } else {
    const double ratio = (now - warmup) / (end - warmup);
    share = o.lr_decay_style == "linear" ? 1 - ratio : (1 + std::cos(std::numbers::pi * ratio)) / 2;
  }
  return o.min_lr + (o.lr - o.min_lr) * share;
}

}  // namespace slimexx::train
