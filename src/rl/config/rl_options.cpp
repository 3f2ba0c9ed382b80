#include "rl/config/rl_options.h"

#include "rl/advantage/estimators.h"

namespace slimexx::rl {
namespace {

using config::Binder;

constexpr double kMaxInt32 = 2147483647, kMaxFactor = 1e6;

// Which tokens count in the loss, and their weights.
void bind_weights_of_tokens(Binder& b, RlOptions& o) {
  b.field("per_token_loss", o.per_token_loss,
          {.doc = "Average the loss over all response tokens of the batch. false: average over "
                  "each sample's tokens, then over samples.",
           .slime = "calculate-per-token-loss"});
  b.field("loss_token_divisor", o.loss_token_divisor,
          {.unit = "tokens",
           .doc = "Divide the loss of each response by this number instead of its token count. "
                  "Dr.GRPO (arXiv:2503.20783) sets it to rollout_max_response_len.",
           .min = 1,
           .max = kMaxInt32,
           .slime = "-"});
  b.field("overlong_filtering", o.overlong_filtering,
          {.doc = "Mask truncated responses out of the loss. Their rewards still count in the "
                  "group's statistics, and they still count as responses in the mean over samples.",
           .slime = "-",
           .when = "loss_type policy_loss"});
  b.field("overlong_buffer_len", o.overlong_buffer_len,
          {.unit = "tokens",
           .doc = "Length penalty (DAPO, arXiv:2503.14476) in the last overlong_buffer_len tokens "
                  "before rollout_max_response_len: it rises linearly from 0 to "
                  "overlong_penalty_factor at the limit. 0: off.",
           .min = 0,
           .max = kMaxInt32,
           .slime = "-",
           .when = "loss_type policy_loss"});
  b.field("overlong_penalty_factor", o.overlong_penalty_factor,
          {.doc = "Penalty subtracted from the reward of a response that reaches "
                  "rollout_max_response_len (see overlong_buffer_len).",
           .min = 0,
           .slime = "-",
           .when = "overlong_buffer_len"});
  b.field("use_tis", o.use_tis,
          {.doc = "Truncated importance sampling between rollout and training log-probs.",
           .when = "loss_type policy_loss"});
  b.field("tis_mode", o.tis_mode,
          {.doc = "truncate: clamp the importance weight to [tis_clip_low, tis_clip]. mask: drop "
                  "tokens whose weight is outside these bounds (IcePop).",
           .choices = {"truncate", "mask"},
           .slime = "-",
           .when = "use_tis"});
  b.field("tis_clip", o.tis_clip,
          {.doc = "Upper bound of the importance weight.", .min = 0, .when = "use_tis"});
  b.field("tis_clip_low", o.tis_clip_low,
          {.doc = "Lower bound of the importance weight.", .min = 0, .when = "use_tis"});
  b.field("use_opsm", o.use_opsm,
          {.doc = "Off-policy sequence masking: mask tokens with a negative advantage if the mean "
                  "log-prob of their response has fallen by more than opsm_delta since generation. "
                  "It has an effect only from a rollout's second optimizer step on.",
           .when = "loss_type policy_loss"});
  b.field(
      "opsm_delta", o.opsm_delta,
      {.unit = "nats",
       .doc = "Threshold of use_opsm for the mean of log p_old - log p over a response's tokens.",
       .min = 0,
       .when = "use_opsm"});
}

void bind_kl(Binder& b, RlOptions& o) {
  b.field("use_kl_loss", o.use_kl_loss,
          {.doc = "Add the KL divergence from the reference model to the loss.",
           .when = "loss_type policy_loss"});
  b.field(
      "kl_loss_coef", o.kl_loss_coef,
      {.doc = "Coefficient of the KL loss.", .min = 0, .max = kMaxFactor, .when = "use_kl_loss"});
  b.field("kl_loss_type", o.kl_loss_type,
          {.doc = "Estimator of the KL, in the loss and in the reward.",
           .choices = {"k1", "k2", "k3", "low_var_kl"},
           .when = "a KL term",
           .may_idle = true});
  b.field("log_ref_kl_interval", o.log_ref_kl_interval,
          {.unit = "rollouts",
           .doc = "If use_kl_loss is on and kl_loss_coef is 0, the KL to the reference is only "
                  "logged: at the first rollout and every N rollouts; 0: never. A KL with a "
                  "nonzero coefficient is computed and logged at every rollout.",
           .min = 0,
           .max = kMaxInt32,
           .slime = "-",
           .when = "use_kl_loss with kl_loss_coef 0",
           .may_idle = true});
  b.field("ref_update_interval", o.ref_update_interval,
          {.unit = "rollouts",
           .doc = "Copy the policy to the reference model every N rollouts; unset: never. The "
                  "reference must have the policy's architecture. Checkpoints include it.",
           .min = 1,
           .max = kMaxInt32,
           .when = "a reference"});
  b.field("use_unbiased_kl", o.use_unbiased_kl,
          {.doc = "Weight the KL loss by the probability ratio of the policy to the old policy.",
           .when = "use_kl_loss"});
  b.field("kl_coef", o.kl_coef,
          {.doc = "Coefficient of the KL in the reward (reinforce_plus_plus, "
                  "reinforce_plus_plus_baseline and rloo).",
           .min = 0,
           .max = kMaxFactor,
           .when = "reinforce_plus_plus, its baseline, rloo"});
}

}  // namespace

void bind(Binder& b, RlOptions& o) {
  b.begin_section("rl", "Advantages and the policy loss.");
  b.field("advantage_estimator", o.advantage_estimator,
          {.doc = "Estimator that computes advantages from rewards.",
           .choices = list_estimator_names(),
           .refused_choices = {{"ppo", "planned: a critic"}},
           .when = "loss_type policy_loss"});
  b.field("rewards_normalization", o.rewards_normalization,
          {.doc = "Subtract the group's mean from the rewards (grpo, gspo, cispo, "
                  "reinforce_plus_plus_baseline). slime's flag sets it to false.",
           .slime = "disable-rewards-normalization",
           .when = "grpo, gspo, cispo, reinforce_plus_plus_baseline"});
  b.field("grpo_std_normalization", o.grpo_std_normalization,
          {.doc = "Divide the rewards by the group's standard deviation (grpo, gspo, cispo). "
                  "slime's flag sets it to false.",
           .slime = "disable-grpo-std-normalization",
           .when = "grpo, gspo, cispo"});
  b.field("normalize_advantages", o.normalize_advantages,
          {.doc = "Whiten advantages over the rollout's response tokens. Both reinforce_plus_plus "
                  "estimators require it.",
           .when = "loss_type policy_loss"});
  b.field("gamma", o.gamma,
          {.doc = "Discount factor of reinforce_plus_plus.",
           .min = 0,
           .max = 1,
           .when = "reinforce_plus_plus"});
  b.field("eps_clip", o.eps_clip,
          {.doc = "Lower clip of the probability ratio: 1 - eps_clip.",
           .min = 0,
           .when = "loss_type policy_loss"});
  b.field("eps_clip_high", o.eps_clip_high,
          {.doc = "Upper clip of the probability ratio: 1 + eps_clip_high. Default: eps_clip.",
           .min = 0,
           .when = "loss_type policy_loss"});
  b.field("eps_clip_c", o.eps_clip_c,
          {.doc = "Dual clip: bound of the ratio for negative advantages; unset: off.",
           .min = 1,
           .min_exclusive = true,
           .when = "all but cispo"});
  bind_kl(b, o);
  b.field("entropy_coef", o.entropy_coef,
          {.doc = "Coefficient of the entropy bonus.",
           .min = -kMaxFactor,
           .max = kMaxFactor,
           .when = "loss_type policy_loss"});
  bind_weights_of_tokens(b, o);
  b.end_section();
}

}  // namespace slimexx::rl
