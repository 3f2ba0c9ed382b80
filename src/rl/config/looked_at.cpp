#include "rl/config/looked_at.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "rl/advantage/estimators.h"
#include "rl/config/speculation.h"
#include "slimexx/base/check.h"

namespace slimexx::rl {
namespace {

// Why a key has no effect.
struct Idle {
  const char* decided_by;  // the key that makes it idle
  std::string why;
  std::string hint = "leave it out";
  bool is_named = false;  // always named, never refused
};
using MaybeIdle = std::optional<Idle>;

struct Condition {
  std::string_view when;
  MaybeIdle (*find_idle)(const RunConfig& run);
};

MaybeIdle idle_unless(bool is_looked_at, Idle idle) {
  if (is_looked_at) return std::nullopt;
  return idle;
}

const Idle kSft{"train.loss_type", "train.loss_type is sft"};
const Idle kDump{"debug.load_rollout", "samples come from debug.load_rollout", "leave it out",
                 true};
const Idle kNoSets{"eval.eval_prompt_data", "there is no evaluation set"};

bool has_dump(const RunConfig& run) { return !run.debug.load_rollout.empty(); }
bool has_sets(const RunConfig& run) { return !run.eval.eval_prompt_data.empty(); }
bool decays(const RunConfig& run) { return run.optimizer.lr_decay_style != "constant"; }
bool has_kl(const RunConfig& run) { return run.rl.use_kl_loss || run.rl.kl_coef != 0; }

MaybeIdle of_policy(const RunConfig& run) { return idle_unless(!run.is_sft(), kSft); }
MaybeIdle of_rollouts(const RunConfig& run) {
  return run.is_sft() ? MaybeIdle(kSft) : idle_unless(!has_dump(run), kDump);
}
// Keys that only rollouts and evaluations use.
MaybeIdle of_rollouts_or_sets(const RunConfig& run) {
  return has_sets(run) ? std::nullopt : of_rollouts(run);
}

// `looks`: the flag that says whether an estimator uses the key.
MaybeIdle of_estimators(const RunConfig& run, bool EstimatorInfo::*looks,
                        const std::string& hint = "leave it out") {
  if (run.is_sft()) return kSft;
  const EstimatorInfo* estimator = find_estimator(run.rl.advantage_estimator);
  return idle_unless(estimator == nullptr || estimator->*looks,
                     {"rl.advantage_estimator",
                      fmt::format("{} does not use it", run.rl.advantage_estimator), hint});
}

// A key that has an effect only if another key is on.
template <class T>
MaybeIdle of_switch(const RunConfig& run, bool is_on, const char* key, const T& value) {
  if (run.is_sft()) return kSft;
  return idle_unless(is_on, {key, fmt::format("{} is {}", key, value),
                             fmt::format("leave it out, or set {}", key)});
}

MaybeIdle of_optimizer(bool is_on, const RunConfig& run) {
  return idle_unless(is_on,
                     {"optimizer.lr_decay_style",
                      fmt::format("optimizer.lr_decay_style is {}", run.optimizer.lr_decay_style)});
}

const Condition kConditions[] = {
    {"loss_type policy_loss", of_policy},
    {"loss_type sft",
     [](const RunConfig& run) {
       return idle_unless(run.is_sft(), {"train.loss_type", "train.loss_type is policy_loss"});
     }},
    {"loss_type sft, no num_rollout",
     [](const RunConfig& run) {
       if (!run.is_sft()) return MaybeIdle({"train.loss_type", "train.loss_type is policy_loss"});
       return idle_unless(!run.rollout.num_rollout,
                          {"rollout.num_rollout", "rollout.num_rollout is set",
                           "leave it out, or set rollout.num_rollout to null"});
     }},
    {"no num_rollout",
     [](const RunConfig& run) {
       if (has_dump(run)) return MaybeIdle(kDump);
       return idle_unless(!run.rollout.num_rollout,
                          {"rollout.num_rollout", "rollout.num_rollout is set",
                           "leave it out, or set rollout.num_rollout to null"});
     }},
    {"rollouts are generated", of_rollouts},
    {"prompts are drawn",
     [](const RunConfig& run) {
       MaybeIdle idle = of_rollouts(run);
       if (idle)
         idle->is_named = false;  // refuse the key: the user expects it to select the training data
       return idle;
     }},
    {"rollouts are generated, or sft has no global_batch_size",
     [](const RunConfig& run) {
       if (!run.is_sft()) return of_rollouts(run);
       return idle_unless(!run.train.global_batch_size,
                          {"train.global_batch_size", "train.global_batch_size is set"});
     }},
    {"data are read", [](const RunConfig& run) { return idle_unless(!has_dump(run), kDump); }},
    {"prompts are read",
     [](const RunConfig& run) { return idle_unless(!has_dump(run) || has_sets(run), kDump); }},
    {"apply_chat_template",
     [](const RunConfig& run) {
       return idle_unless(run.data.apply_chat_template,
                          {"data.apply_chat_template", "data.apply_chat_template is false",
                           "leave it out, or set data.apply_chat_template to true"});
     }},
    {"responses are graded", of_rollouts_or_sets},
    {"an engine runs", of_rollouts_or_sets},
    {"an engine runs, or overlong_buffer_len is set",
     [](const RunConfig& run) {
       return run.rl.overlong_buffer_len > 0 ? std::nullopt : of_rollouts_or_sets(run);
     }},
    {"grpo, gspo, cispo, reinforce_plus_plus_baseline",
     [](const RunConfig& run) { return of_estimators(run, &EstimatorInfo::uses_group_mean); }},
    {"grpo, gspo, cispo",
     [](const RunConfig& run) { return of_estimators(run, &EstimatorInfo::uses_deviation); }},
    {"reinforce_plus_plus",
     [](const RunConfig& run) { return of_estimators(run, &EstimatorInfo::discounts); }},
    {"reinforce_plus_plus, its baseline, rloo",
     [](const RunConfig& run) {
       return of_estimators(run, &EstimatorInfo::uses_kl_in_reward, "use kl_loss_coef");
     }},
    {"all but cispo",
     [](const RunConfig& run) { return of_estimators(run, &EstimatorInfo::clips_twice); }},
    {"use_kl_loss",
     [](const RunConfig& run) {
       if (run.rl.kl_coef != 0 && run.rl.kl_loss_coef != 0)
         return MaybeIdle();  // reported as a fault of its own
       return of_switch(run, run.rl.use_kl_loss, "rl.use_kl_loss", run.rl.use_kl_loss);
     }},
    {"use_kl_loss with kl_loss_coef 0",
     [](const RunConfig& run) {
       if (!run.rl.use_kl_loss) return of_switch(run, false, "rl.use_kl_loss", run.rl.use_kl_loss);
       return of_switch(run, run.rl.logs_reference_only(),
                        run.rl.kl_coef != 0 ? "rl.kl_coef" : "rl.kl_loss_coef",
                        run.rl.kl_coef != 0 ? run.rl.kl_coef : run.rl.kl_loss_coef);
     }},
    {"a KL term",
     [](const RunConfig& run) {
       if (run.is_sft()) return MaybeIdle(kSft);
       return idle_unless(has_kl(run), {"rl.use_kl_loss", "there is no KL term"});
     }},
    {"a reference",
     [](const RunConfig& run) {
       if (run.is_sft()) return MaybeIdle(kSft);
       return idle_unless(
           needs_reference(run),
           {"rl.use_kl_loss", "no reference model is used",
            "set model.ref_load, and rl.use_kl_loss or rl.kl_coef; or leave it out"});
     }},
    {"use_tis",
     [](const RunConfig& run) {
       return of_switch(run, run.rl.use_tis, "rl.use_tis", run.rl.use_tis);
     }},
    {"use_opsm",
     [](const RunConfig& run) {
       return of_switch(run, run.rl.use_opsm, "rl.use_opsm", run.rl.use_opsm);
     }},
    {"overlong_buffer_len",
     [](const RunConfig& run) {
       return of_switch(run, run.rl.overlong_buffer_len > 0, "rl.overlong_buffer_len",
                        run.rl.overlong_buffer_len);
     }},
    {"use_dynamic_batch_size",
     [](const RunConfig& run) {
       return idle_unless(
           run.train.use_dynamic_batch_size || has_dump(run),
           {"train.use_dynamic_batch_size", "train.use_dynamic_batch_size is false"});
     }},
    {"use_dynamic_batch_size is false",
     [](const RunConfig& run) {
       return idle_unless(!run.train.use_dynamic_batch_size,
                          {"train.use_dynamic_batch_size", "train.use_dynamic_batch_size is true",
                           "leave it out, or set train.use_dynamic_batch_size to false"});
     }},
    {"enable_mtp_training",
     [](const RunConfig& run) {
       return idle_unless(run.train.enable_mtp_training,
                          {"train.enable_mtp_training", "train.enable_mtp_training is false",
                           "leave it out, or set train.enable_mtp_training to true"});
     }},
    {"the rate decays", [](const RunConfig& run) { return of_optimizer(decays(run), run); }},
    {"the rate decays, or lr_warmup_fraction is set",
     [](const RunConfig& run) {
       return of_optimizer(decays(run) || run.optimizer.lr_warmup_fraction, run);
     }},
    {"WSD",
     [](const RunConfig& run) { return of_optimizer(run.optimizer.lr_decay_style == "WSD", run); }},
    {"a warm-up",
     [](const RunConfig& run) {
       return idle_unless(
           run.optimizer.lr_warmup_iters > 0 || run.optimizer.lr_warmup_fraction.value_or(0) > 0,
           {"optimizer.lr_warmup_iters", "there is no warm-up",
            "leave it out, or set optimizer.lr_warmup_iters"});
     }},
    {"speculative_algorithm",
     [](const RunConfig& run) {
       return idle_unless(speculates(run.rollout),
                          {"rollout.speculative_algorithm", "rollout.speculative_algorithm is none",
                           "set speculative_algorithm: EAGLE, or leave it out"});
     }},
    {"EAGLE, NEXTN",
     [](const RunConfig& run) {
       return idle_unless(
           asks_mtp(run.rollout),
           {"rollout.speculative_algorithm",
            fmt::format("rollout.speculative_algorithm is {}", run.rollout.speculative_algorithm),
            speculates(run.rollout) ? "leave it out"
                                    : "set speculative_algorithm: EAGLE, or leave it out"});
     }},
    {"evaluation sets", [](const RunConfig& run) { return idle_unless(has_sets(run), kNoSets); }},
    {"eval_interval",
     [](const RunConfig& run) {
       return idle_unless(run.eval.eval_interval > 0,
                          {"eval.eval_interval", "eval.eval_interval is 0",
                           "leave it out, or set eval.eval_interval"});
     }},
    {"model.load",
     [](const RunConfig& run) {
       return idle_unless(!run.model.load.empty(), {"model.load", "model.load is not set",
                                                    "set model.load to the folder of checkpoints"});
     }},
    {"log_samples_interval",
     [](const RunConfig& run) {
       return idle_unless(run.observe.log_samples_interval > 0,
                          {"observe.log_samples_interval", "observe.log_samples_interval is 0"});
     }},
};

const Condition* find_condition(const std::string& when) {
  const auto* found = std::ranges::find(kConditions, when, &Condition::when);
  return found == std::end(kConditions) ? nullptr : found;
}

}  // namespace

bool is_condition(const std::string& when) { return find_condition(when) != nullptr; }

void check_looked_at(config::Config& config, const RunConfig& run) {
  for (const config::FieldInfo& field : config.changed_fields()) {
    if (field.meta.is_detail) config.take_idle(field.path, "planned: " + field.meta.later);
    if (field.meta.when.empty()) continue;
    const Condition* condition = find_condition(field.meta.when);
    SLX_CHECK(condition != nullptr, "{}: {}", field.path, field.meta.when);
    const MaybeIdle idle = condition->find_idle(run);
    if (!idle || config.has_fault(idle->decided_by)) continue;
    if (field.meta.may_idle || idle->is_named || config.is_below(field.path, idle->decided_by))
      config.take_idle(field.path, idle->why);
    else
      config.add_fault(field.path, "is set, and " + idle->why, idle->hint);
  }
}

}  // namespace slimexx::rl
