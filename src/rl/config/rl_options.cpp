#include "rl/config/rl_options.h"

#include "rl/advantage/estimators.h"

namespace slimexx::rl {
namespace {

using config::Binder;

constexpr double kMaxInt32 = 2147483647, kMaxFactor = 1e6;

// Which tokens count in the loss, and their weights.
void bind_weights_of_tokens(Binder& b, RlOptions& o) {
  b.field("per_token_loss", o.per_token_loss,
          {.doc = "Mean over the batch's response tokens instead of per sample, then over samples.",
           .slime = "calculate-per-token-loss"});
  b.field("loss_token_divisor", o.loss_token_divisor,
          {.unit = "tokens",
           .doc = "Divide the loss of each response by this number, not by its own tokens: "
                  "Dr.GRPO, with rollout_max_response_len for it (arXiv:2503.20783).",
           .min = 1,
           .max = kMaxInt32,
           .slime = "-"});
  b.field("overlong_filtering", o.overlong_filtering,
          {.doc = "Responses that were cut off train nothing. Their rewards still count in the "
                  "mean of their group, and they in the number of responses.",
           .slime = "-",
           .when = "loss_type policy_loss"});
  b.field("overlong_buffer_len", o.overlong_buffer_len,
          {.unit = "tokens",
           .doc = "Responses that end in the last so many tokens before rollout_max_response_len "
                  "lose some of their reward, evenly up to overlong_penalty_factor at the limit "
                  "(DAPO, arXiv:2503.14476); 0: none.",
           .min = 0,
           .max = kMaxInt32,
           .slime = "-",
           .when = "loss_type policy_loss"});
  b.field("overlong_penalty_factor", o.overlong_penalty_factor,
          {.doc = "What a response of full length loses under overlong_buffer_len.",
           .min = 0,
           .slime = "-",
           .when = "overlong_buffer_len"});
  b.field("use_tis", o.use_tis,
          {.doc = "Truncated importance sampling between rollout and training log-probs.",
           .when = "loss_type policy_loss"});
  b.field("tis_mode", o.tis_mode,
          {.doc = "truncate: clamp the weight; mask: drop tokens outside (IcePop).",
           .choices = {"truncate", "mask"},
           .slime = "-",
           .when = "use_tis"});
  b.field("tis_clip", o.tis_clip,
          {.doc = "Upper bound of the weight.", .min = 0, .when = "use_tis"});
  b.field("tis_clip_low", o.tis_clip_low,
          {.doc = "Lower bound of the weight.", .min = 0, .when = "use_tis"});
  b.field("use_opsm", o.use_opsm,
          {.doc = "Off-policy sequence masking: tokens of negative advantage do not count where "
                  "their response has become less likely than opsm_delta allows. It has a say "
                  "from a rollout's second optimizer step on.",
           .when = "loss_type policy_loss"});
  b.field("opsm_delta", o.opsm_delta,
          {.unit = "nats",
           .doc = "Mean of log p_old - log p over a response's tokens, above which use_opsm masks.",
           .min = 0,
           .when = "use_opsm"});
}

void bind_kl(Binder& b, RlOptions& o) {
  b.field(
      "use_kl_loss", o.use_kl_loss,
      {.doc = "Add the KL to the reference model to the loss.", .when = "loss_type policy_loss"});
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
           .doc = "With use_kl_loss and kl_loss_coef 0 the KL to the reference is only logged: at "
                  "the first rollout and every so many; 0: never. A KL with a coefficient is "
                  "computed and logged at every rollout.",
           .min = 0,
           .max = kMaxInt32,
           .slime = "-",
           .when = "use_kl_loss with kl_loss_coef 0",
           .may_idle = true});
  b.field(
      "ref_update_interval", o.ref_update_interval,
      {.unit = "rollouts",
       .doc = "The reference becomes the policy after every so many rollouts; left out: it stays "
              "what it was. It must be of the policy's architecture. Checkpoints hold it.",
       .min = 1,
       .max = kMaxInt32,
       .when = "a reference"});
  b.field(
      "use_unbiased_kl", o.use_unbiased_kl,
      {.doc = "Weight the KL loss by the ratio of policy and old policy.", .when = "use_kl_loss"});
  b.field("kl_coef", o.kl_coef,
          {.doc = "KL in the reward (reinforce_plus_plus, its baseline and rloo).",
           .min = 0,
           .max = kMaxFactor,
           .when = "reinforce_plus_plus, its baseline, rloo"});
}

}  // namespace

void bind(Binder& b, RlOptions& o) {
  b.begin_section("rl", "Advantages and the policy loss.");
  b.field("advantage_estimator", o.advantage_estimator,
          {.doc = "How rewards become advantages.",
           .choices = list_estimator_names(),
           .refused_choices = {{"ppo", "planned: a critic"}},
           .when = "loss_type policy_loss"});
  b.field("rewards_normalization", o.rewards_normalization,
          {.doc = "Subtract the group's mean from rewards (grpo, gspo, cispo, "
                  "reinforce_plus_plus_baseline); slime's flag turns it off.",
           .slime = "disable-rewards-normalization",
           .when = "grpo, gspo, cispo, reinforce_plus_plus_baseline"});
  b.field(
      "grpo_std_normalization", o.grpo_std_normalization,
      {.doc = "Divide by the group's standard deviation (grpo, gspo, cispo); slime's flag turns it "
              "off.",
       .slime = "disable-grpo-std-normalization",
       .when = "grpo, gspo, cispo"});
  b.field("normalize_advantages", o.normalize_advantages,
          {.doc = "Whiten advantages over the rollout's response tokens; both reinforce_plus_plus "
                  "estimators require it.",
           .when = "loss_type policy_loss"});
  b.field("gamma", o.gamma,
          {.doc = "Discount of reinforce_plus_plus.",
           .min = 0,
           .max = 1,
           .when = "reinforce_plus_plus"});
  b.field("eps_clip", o.eps_clip,
          {.doc = "The ratio is clipped below 1 - eps_clip.",
           .min = 0,
           .when = "loss_type policy_loss"});
  b.field("eps_clip_high", o.eps_clip_high,
          {.doc = "The ratio is clipped above 1 + eps_clip_high; default eps_clip.",
           .min = 0,
           .when = "loss_type policy_loss"});
  b.field("eps_clip_c", o.eps_clip_c,
          {.doc = "Dual clip: bound of the loss at negative advantages; absent: off.",
           .min = 1,
           .min_exclusive = true,
           .when = "all but cispo"});
  bind_kl(b, o);
  b.field("entropy_coef", o.entropy_coef,
          {.doc = "Bonus on the entropy.",
           .min = -kMaxFactor,
           .max = kMaxFactor,
           .when = "loss_type policy_loss"});
  bind_weights_of_tokens(b, o);
  b.end_section();
}

}  // namespace slimexx::rl
