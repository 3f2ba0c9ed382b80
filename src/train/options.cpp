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
  b.field(
      "mtp_num_layers", o.mtp_num_layers,
      {.doc = "How many of the model's multi-token prediction layers enable_mtp_training trains, "
              "from the first on. No effect without that key.",
       .min = 0,
       .max = 16,
       .when = "enable_mtp_training",
       .may_idle = true});
  b.field(
      "enable_mtp_training", o.enable_mtp_training,
      {.doc =
           "Train multi-token prediction layers on the tokens of the loss mask, by "
           "cross-entropy. Nothing else gets a gradient from it, but the gradients' norm, by "
           "which clip_grad clips, counts theirs. Copies of embedding and head in a layer that is "
           "trained follow the model's own, as long as they were equal when the run began. "
           "Layers that are not trained are exported as they were loaded."});
  b.field("mtp_loss_scaling_factor", o.mtp_loss_scaling_factor,
          {.doc = "Weight of those layers' loss, the mean over layers of the mean over tokens.",
           .min = 0,
           .max = kMaxFactor,
           .when = "enable_mtp_training"});
}

void bind_routers(config::Binder& b, TrainOptions& o) {
  b.field(
      "moe_router_bias_update_rate", o.moe_router_bias_update_rate,
      {.doc =
           "After each optimizer step a router's correction bias moves by this, up for an expert "
           "that got fewer tokens than the mean of the step, down for one that got more "
           "(DeepSeek-V3, GLM). 0 leaves it as it was loaded.",
       .min = 0,
       .max = kMaxFactor});
  b.field("moe_aux_loss_coeff", o.moe_aux_loss_coeff,
          {.doc = "Weight of train/moe_aux_loss in the gradient: per layer with experts the mean "
                  "over sequences of a sequence's load balancing loss (Megatron's seq_aux_loss).",
           .min = 0,
           .max = kMaxFactor});
  b.field("moe_z_loss_coeff", o.moe_z_loss_coeff,
          {.doc = "Weight of train/moe_z_loss in the gradient: per layer with experts the mean "
                  "over sequences of the mean over tokens of logsumexp(router logits)^2.",
           .min = 0,
           .max = kMaxFactor});
}

void bind_freezing(config::Binder& b, TrainOptions& o) {
  b.field(
      "freeze_params_name_list", o.freeze_params_name_list,
      {.doc = "Regular expressions (as in Python and Perl). A tensor of the Hugging Face folder in "
              "whose "
              "name one is found is not trained: no gradient, no optimizer state, no decay; the "
              "gradients' norm does not count it. A router's correction bias still moves by "
              "moe_router_bias_update_rate."});
  b.field("only_train_params_name_list", o.only_train_params_name_list,
          {.doc = "The same for what is trained: all other tensors are frozen. Not together with "
                  "freeze_params_name_list."});
}

void bind_batch(config::Binder& b, TrainOptions& o) {
  b.field(
      "global_batch_size", o.global_batch_size,
      {.unit = "samples",
       .doc =
           "Samples of one optimizer step; derived from rollout_batch_size * "
           "n_samples_per_prompt = "
           "global_batch_size * num_steps_per_rollout where absent; under sft rollout_batch_size, "
           "on a loaded dump its samples / num_steps_per_rollout.",
       .min = 1,
       .max = kMaxSamples});
  b.field("num_steps_per_rollout", o.num_steps_per_rollout,
          {.unit = "steps",
           .doc = "Optimizer steps made of one rollout; derived where absent (default 1).",
           .min = 1,
           .max = kMaxInt32});
  b.field("use_dynamic_batch_size", o.use_dynamic_batch_size,
          {.doc = "Pack samples into microbatches of at most max_tokens_per_gpu tokens (first fit; "
                  "a longer sample "
                  "stands alone, nothing is cut). Otherwise micro_batch_size samples each."});
  b.field("max_tokens_per_gpu", o.max_tokens_per_gpu,
          {.unit = "tokens",
           .doc = "Capacity of a microbatch under dynamic batching.",
           .min = 1,
           .max = kMaxInt32,
           .when = "use_dynamic_batch_size",
           .may_idle = true});
  b.field("micro_batch_size", o.micro_batch_size,
          {.unit = "samples",
           .doc = "Samples of a microbatch without dynamic batching.",
           .min = 1,
           .max = kMaxSamples,
           .when = "use_dynamic_batch_size is false"});
  b.field(
      "balance_data", o.balance_data,
      {.doc = "Give microbatches to ranks by Karmarkar-Karp on their FLOPs instead of in turn."});
}

}  // namespace

void bind(config::Binder& b, TrainOptions& o) {
  b.begin_section("train", "Batches, microbatches and what the forward keeps.");
  bind_batch(b, o);
  b.field(
      "recompute_granularity", o.recompute_granularity,
      {.doc = "What layers keep for backward. none: everything. full: input, attention's result "
              "and their sum; the rest is computed again. auto: on a GPU as much as the memory "
              "planned for activations holds, on the CPU everything. The same bits every way.",
       .choices = {"auto", "none", "full"},
       .refused_choices = {{"selective", "auto keeps per layer what the memory holds"}}});
  b.field(
      "pipeline_schedule", o.pipeline_schedule,
      {.doc = "Order of a pipeline's work. 1f1b: one forward, one backward, interleaved where a "
              "rank has several stages. zb_h1: a backward sends the gradient of its input first, "
              "and gradients of weights are made where a stage would wait; a rank keeps their "
              "operands for one microbatch more than there are stages before it. Gradients of "
              "experts and of the head are made at once. The same bits either way.",
       .choices = {"1f1b", "zb_h1"},
       .slime = "-"});
  b.field("loss_type", o.loss_type,
          {.doc = "policy_loss: reinforcement learning on rollouts. sft: cross-entropy on the "
                  "assistant's tokens of "
                  "chats.",
           .choices = {"policy_loss", "sft"},
           .refused_choices = {{"sft_loss", "here it is sft"},
                               {"custom_loss",
                                "losses run on the device: "
                                "include/slimexx/kernels/token_loss.h"}}});
  b.field("max_logits_gib", o.max_logits_gib,
          {.unit = "GiB",
           .doc = "Logits held at once by the head: kept for backward where a microbatch's fit, "
                  "else made in chunks. Left out: 0.25 on the CPU; on a GPU 8, or the first half, "
                  "quarter ... of it that leaves room for the activations. The number of chunks "
                  "decides the last bits of the head's gradient.",
           .min = 0,
           .max = 1e6,
           .min_exclusive = true,
           .slime = "-"});
  b.field(
      "max_skipped_steps", o.max_skipped_steps,
      {.unit = "steps",
       .doc =
           "Optimizer steps in a row that may be skipped for NaN or Inf gradients; one more stops "
           "the run.",
       .min = 0,
       .max = kMaxInt32,
       .slime = "-"});
  b.field("num_sft_epochs", o.num_sft_epochs,
          {.unit = "epochs",
           .doc = "Passes over the data under loss_type sft, where rollout.num_epoch is absent.",
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
          {.doc = "Shape of the schedule after the warm-up, as Megatron has it.",
           .choices = {"constant", "linear", "cosine", "inverse-square-root", "WSD"}});
  b.field("lr_warmup_iters", o.lr_warmup_iters,
          {.unit = "steps",
           .doc = "Optimizer steps of linear warm-up from lr_warmup_init to lr, counted from 0.",
           .min = 0,
           .max = kMaxInt32});
  b.field("lr_warmup_init", o.lr_warmup_init,
          {.doc = "Learning rate that the warm-up starts from; step k of W uses "
                  "init + (lr - init) * k / W.",
           .min = 0,
           .max = kMaxRate,
           .when = "a warm-up"});
  b.field("lr_warmup_fraction", o.lr_warmup_fraction,
          {.doc = "The same as a share of the steps up to lr_decay_iters.", .min = 0, .max = 1});
  b.field("lr_decay_iters", o.lr_decay_iters,
          {.unit = "steps",
           .doc = "Optimizer step at which min_lr is reached; default: the run's last. A resume "
                  "that changes how many steps are left moves the default, and says so.",
           .min = 1,
           .max = kMaxInt32,
           .when = "the rate decays, or lr_warmup_fraction"});
  b.field("lr_wsd_decay_style", o.lr_wsd_decay_style,
          {.doc = "Shape of the last stretch of WSD, before which the rate is constant.",
           .choices = {"exponential", "linear", "cosine", "minus_sqrt"},
           .when = "WSD"});
  b.field("lr_wsd_decay_iters", o.lr_wsd_decay_iters,
          {.unit = "steps",
           .doc = "Optimizer steps of that stretch; WSD needs it.",
           .min = 1,
           .max = kMaxInt32,
           .when = "WSD"});
  b.field("weight_decay", o.weight_decay,
          {.doc = "Decoupled weight decay; parameters of one dimension are exempt.",
           .min = 0,
           .max = kMaxFactor});
  b.field("adam_beta1", o.adam_beta1,
          {.doc = "Decay of the first moment.", .min = 0, .max = 0.999999});
  b.field("adam_beta2", o.adam_beta2,
          {.doc = "Decay of the second moment.", .min = 0, .max = 0.999999999});
  b.field("adam_eps", o.adam_eps,
          {.doc = "Added to the root of the second moment.", .min = 1e-30, .max = 1});
  b.field(
      "clip_grad", o.clip_grad,
      {.doc = "Gradients are scaled down to this global 2-norm; 0 turns clipping off.", .min = 0});
  b.field(
      "state_dtype", o.state_dtype,
      {.doc = "What both moments are kept in: 8 bytes a parameter, or 4 under bfloat16. That "
              "rounds them to nearest after every step, whose arithmetic stays float32; keep "
              "adam_beta1 and adam_beta2 at 0.996 or less with it. Checkpoints hold that type and "
              "resume under both.",
       .choices = {"float32", "bfloat16"},
       .slime = "-"});
  b.field("optimizer_cpu_offload", o.optimizer_cpu_offload,
          {.doc = "Keep masters and moments in host memory and update them there, with the same "
                  "bits: 12 bytes a parameter less on the GPU. Gradients and weights cross while "
                  "others are updated."});
  b.field(
      "reset_optimizer_states", o.reset_optimizer_states,
      {.doc = "Begin every rollout with moments of zero, and with their bias correction anew."});
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
