#include "slimexx/rl/run_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "rl/advantage/estimators.h"
#include "rl/config/fp8_keys.h"
#include "rl/config/looked_at.h"
#include "rl/config/run_config_bounds.h"
#include "rl/config/run_config_folders.h"
#include "rl/config/speculation.h"
#include "rl/generation/dynamic_sampling.h"
#include "slimexx/base/error.h"
#include "slimexx/base/json.h"
#include "slimexx/base/url.h"
#include "slimexx/io/hf_folder.h"
#include "slimexx/model/families.h"
#include "slimexx/rl/engine_shape.h"
#include "slimexx/rl/evaluation.h"
#include "slimexx/rl/model_grid.h"
#include "slimexx/rl/rank_roles.h"

namespace slimexx::rl {
namespace {

// Finds faults that involve more than one field.
class Validation {
 public:
  Validation(config::Config& config, RunConfig& run, const RunConfigRequest& request)
      : config_(config),
        run_(run),
        needs_training_(request.needs_training),
        num_ranks_(request.num_ranks) {}

  void check() {
    check_required();
    settle_fp8(config_, run_);
    check_eval_names();
    check_temperatures();
    check_ranks();
    check_grid();
    check_engines();
    if (!needs_training_) return check_sizes();
    check_algorithm();
    check_bounds(config_, run_);
    check_rollout_only(config_, run_);
    check_schedule(config_, run_.optimizer);
    check_trained(config_, run_.train);
    check_folders(config_, run_);
    check_looked_at(config_, run_);
    check_sizes();
    derive_batch();
  }

 private:
  void fault(const std::string& key, const std::string& reason, const std::string& hint = "") {
    config_.add_fault(key, reason, hint);
  }

  void check_required() {
    // An evaluated checkpoint contains the model's files, so hf_checkpoint may be unset.
    if (run_.model.hf_checkpoint.empty() && (needs_training_ || run_.model.load.empty()))
      fault("model.hf_checkpoint", "is missing", "set it to a Hugging Face folder");
    check_grader();
    if (!run_.data.apply_chat_template_kwargs.empty() &&
        run_.data.apply_chat_template_kwargs[0] != '{') {
      fault("data.apply_chat_template_kwargs", "is not a mapping",
            "apply_chat_template_kwargs: {enable_thinking: false}");
    }
    if (!needs_training_) return;
    if (run_.debug.load_rollout.empty() && run_.data.prompt_data.empty()) {
      fault("data.prompt_data", "is missing", "set it to a JSON-lines file of prompts");
    }
    if (run_.debug.load_rollout.empty() && !run_.is_sft() && !run_.rollout.num_rollout &&
        !run_.rollout.num_epoch) {
      fault("rollout.num_rollout", "is missing",
            "set it to the number of rollouts, or set rollout.num_epoch");
    }
    if (run_.checkpoint.save_interval.value_or(0) > 0 && run_.checkpoint.save.empty() &&
        run_.observe.run_dir.empty()) {
      fault("checkpoint.save", "is missing, and save_interval is set",
            "set it, or observe.run_dir");
    }
    if (run_.eval.eval_interval > 0 && run_.eval.eval_prompt_data.empty()) {
      fault("eval.eval_prompt_data", "is missing, and eval_interval is set",
            "eval_prompt_data: {name: FILE}");
    }
  }

  void check_grader() {
    if (run_.reward.rm_url.find(kHiddenPart) != std::string::npos)
      fault("reward.rm_url", "lacks the user, password or query, which this file omits",
            "give the whole URL, with secrets written as ${env:NAME}");
    const bool grades_rollouts =
        needs_training_ && !run_.is_sft() && run_.debug.load_rollout.empty();
    const bool evaluates = !run_.eval.eval_prompt_data.empty() && run_.eval.eval_rm_type.empty() &&
                           (!needs_training_ || run_.eval.eval_interval > 0);
    if (!run_.reward.rm_type.empty() || (!grades_rollouts && !evaluates)) return;
    std::string names;
    for (const auto& info : reward::list_rewards())
      names += (names.empty() ? "" : ", ") + info.name;
    fault("reward.rm_type", "is missing",
          fmt::format("choose a grader: {}; docs/howto/reward.md says which labels each reads",
                      names));
  }

  void check_eval_names() {
    for (const auto& [name, path] : run_.eval.eval_prompt_data) {
      if (!is_set_name(name))
        fault("eval.eval_prompt_data", fmt::format("has a set named \"{}\"", name),
              "use letters, digits, _ . -");
    }
  }

  void check_ranks() {
    if (!run_.parallel.colocate) return check_apart_ranks();
    if (num_ranks_ > 0) roles_ = make_rank_roles(run_.parallel, static_cast<int>(num_ranks_));
    const auto all_ranks = [&](const char* key, const std::optional<int64_t>& value) {
      if (num_ranks_ > 0 && value && *value != num_ranks_)
        fault(key, fmt::format("is {}, but the run has {} ranks", *value, num_ranks_),
              "every rank trains and generates: start this many ranks, leave the key out, or set "
              "parallel.colocate: false");
    };
    all_ranks("parallel.actor_num_gpus", run_.parallel.actor_num_gpus);
    all_ranks("parallel.rollout_num_gpus", run_.parallel.rollout_num_gpus);
  }

  void check_apart_ranks() {
    const ParallelOptions& o = run_.parallel;
    const auto wants = [&](const char* key, const std::optional<int64_t>& value, const char* what) {
      if (!value && !config_.has_fault(key))
        fault(key, "is missing, and parallel.colocate is false", what);
      return value.has_value();
    };
    const bool has_trainers = wants("parallel.actor_num_gpus", o.actor_num_gpus,
                                    "set it to the number of ranks that train");
    const bool has_generators = wants("parallel.rollout_num_gpus", o.rollout_num_gpus,
                                      "set it to the number of ranks that generate");
    if (needs_training_ && !needs_engine(run_))
      fault("parallel.colocate", "is false, but the run generates nothing",
            "leave it out: all ranks train");
    if (!has_trainers || !has_generators || num_ranks_ == 0) return;
    const int64_t wanted = *o.actor_num_gpus + *o.rollout_num_gpus;
    if (wanted == num_ranks_)
      roles_ = make_rank_roles(o, static_cast<int>(num_ranks_));
    else
      fault("parallel.actor_num_gpus",
            fmt::format("{} + rollout_num_gpus {} = {}, but the run has {} ranks",
                        *o.actor_num_gpus, *o.rollout_num_gpus, wanted, num_ranks_),
            "start this many ranks: the first ones train, the rest generate");
  }

  // Checks the sizes against the number of ranks. The model is checked against the sizes once it is
  // loaded.
  void check_grid() {
    for (const char* key :
         {"parallel.tensor_model_parallel_size", "parallel.pipeline_model_parallel_size",
          "parallel.context_parallel_size", "parallel.expert_model_parallel_size",
          "parallel.expert_tensor_parallel_size"})
      if (config_.has_fault(key)) return;
    if (!roles_) return;
    const dist::GridSizes sizes = grid_sizes(run_.parallel);
    try {
      dist::GridShape(roles_->num_trainers, sizes);
    } catch (const Error& error) {
      dist::GridAdvice advice{error.hint(), error.where()};
      if (const auto spec = try_read_spec())
        advice = dist::advise_grid(roles_->num_trainers, sizes,
                                   rule_of(*spec, pipeline_split(run_.parallel)));
      fault(advice.key, error.message(), advice.hint);
    }
  }

  // The model's spec, if its config.json is readable, so that proposed sizes also suit the model.
  std::optional<model::ModelSpec> try_read_spec() const {
    try {
      const std::string& folder = run_.model.hf_checkpoint;
      return model::read_model_spec(io::HfFolder::open_without_weights(folder).config(), folder);
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  // Checks the sizes of engines against the number of ranks. The model is checked against the sizes
  // once it is loaded; here its spec only improves the hint.
  void check_engines() {
    for (const char* key :
         {"rollout.rollout_num_gpus_per_engine", "rollout.dp_size", "rollout.ep_size",
          "rollout.ep_num_redundant_experts", "rollout.moe_dense_tp_size",
          "rollout.enable_dp_attention", "parallel.tensor_model_parallel_size"})
      if (config_.has_fault(key)) return;
    if (!roles_) return;
    const auto find_fault = [&](const model::ModelSpec* spec) -> std::optional<Error> {
      try {
        make_engine_shape(run_.rollout, grid_sizes(run_.parallel), roles_->num_generators, spec);
        return std::nullopt;
      } catch (const Error& error) {
        return error;
      }
    };
    auto error = find_fault(nullptr);
    if (!error) return;
    if (const auto spec = try_read_spec()) error = find_fault(&*spec);
    fault(error->where(), error->message(), error->hint());
  }

  // Logits are divided by the temperature in f32, so its range is limited.
  void check_temperature(const char* key, double value) {
    constexpr double kLeast = 1e-6, kGreatest = 1e6;
    if (value >= kLeast && value <= kGreatest) return;
    fault(key, fmt::format("is {}", value),
          fmt::format("use a value from {} to {}", kLeast, kGreatest));
  }

  void check_temperatures() {
    check_temperature("rollout.rollout_temperature", run_.rollout.rollout_temperature);
    if (run_.eval.eval_temperature.value_or(0) != 0)
      check_temperature("eval.eval_temperature", *run_.eval.eval_temperature);
  }

  void check_algorithm() {
    RlOptions& rl = run_.rl;
    if (rl.kl_coef != 0 && rl.kl_loss_coef != 0) {
      fault("rl.kl_coef", "and rl.kl_loss_coef are both set",
            "keep one: KL in the reward, or in the loss");
    }
    if ((rl.kl_coef != 0 || rl.use_kl_loss) && run_.model.ref_load.empty() && !run_.is_sft() &&
        run_.debug.load_rollout.empty()) {
      fault("model.ref_load", "is missing, but a KL term needs a reference model",
            "set it to the Hugging Face folder of the reference model");
    }
    const EstimatorInfo* estimator = find_estimator(rl.advantage_estimator);
    if (estimator != nullptr && estimator->wants_whitening && !rl.normalize_advantages &&
        !run_.is_sft()) {
      fault("rl.normalize_advantages",
            fmt::format("is false, but {} needs it", rl.advantage_estimator), "set it to true");
    }
    if (estimator != nullptr && rl.rewards_normalization &&
        run_.rollout.n_samples_per_prompt < estimator->min_group_size && !run_.is_sft() &&
        run_.debug.load_rollout.empty()) {
      fault("rollout.n_samples_per_prompt",
            fmt::format("is {}, and {} compares at least {} samples of a prompt",
                        run_.rollout.n_samples_per_prompt, rl.advantage_estimator,
                        estimator->min_group_size),
            "raise it");
    }
  }

  // A rollout is held in memory. Its number of samples, a product of two keys, must not overflow.
  void check_sizes() {
    using train::kMaxSamples;
    RolloutOptions& r = run_.rollout;
    if (needs_training_) check_dynamic_sampling(r, [this](const auto&... what) { fault(what...); });
    check_speculation(r, [this](const auto&... what) { fault(what...); });
    const int64_t drawn = r.over_sampling_batch_size.value_or(0);
    if (const int64_t most = std::max(r.rollout_batch_size, drawn);
        most > kMaxSamples / r.n_samples_per_prompt) {
      fault(most == drawn ? "rollout.over_sampling_batch_size" : "rollout.rollout_batch_size",
            fmt::format("{} * n_samples_per_prompt {} is above {} samples of one rollout", most,
                        r.n_samples_per_prompt, kMaxSamples),
            "lower one of the two");
      r.rollout_batch_size = r.n_samples_per_prompt = 1;  // derived values must not overflow
      has_too_many_samples_ = true;
    }
    for (const auto& [key, texts] : {std::pair{"rollout.rollout_stop", &r.rollout_stop},
                                     {"eval.eval_stop", &run_.eval.eval_stop}})
      if (std::ranges::count(*texts, "") > 0) fault(key, "holds an empty text", "remove it");
  }

  // The keys to set if the batch equation has no whole solution.
  std::string batch_hint(int64_t samples) const {
    const bool both = run_.train.global_batch_size && run_.train.num_steps_per_rollout;
    if (samples % run_.num_steps_per_rollout != 0)
      return fmt::format("set num_steps_per_rollout to a divisor of {}", samples);
    return fmt::format("set global_batch_size to {}{}", samples / run_.num_steps_per_rollout,
                       both ? ", or leave one of the two out" : "");
  }

  void derive_batch() {
    if (!run_.debug.load_rollout.empty()) return derive_batch_of_dump();
    if (!run_.is_sft()) return derive_batch_of_prompts();
    run_.global_batch_size = run_.train.global_batch_size.value_or(run_.rollout.rollout_batch_size);
    if (run_.train.num_steps_per_rollout.value_or(1) != 1)
      fault("train.num_steps_per_rollout", "is set, and supervised fine-tuning has no rollouts",
            "leave it out: a step is global_batch_size examples");
  }

  // The number of samples is known only from the dump, so the run checks the equation.
  void derive_batch_of_dump() {
    const auto& gbs = run_.train.global_batch_size;
    run_.global_batch_size = gbs.value_or(0);
    run_.num_steps_per_rollout = run_.train.num_steps_per_rollout.value_or(gbs ? 0 : 1);
    if (run_.num_steps_per_rollout == 0 && run_.optimizer.lr_decay_style != "constant" &&
        !run_.optimizer.lr_decay_iters) {
      fault("optimizer.lr_decay_iters",
            "is missing, and the number of steps of a loaded dump is not known in advance",
            "set it, or train.num_steps_per_rollout");
    }
  }

  // rollout_batch_size * n_samples_per_prompt = global_batch_size * num_steps_per_rollout.
  void derive_batch_of_prompts() {
    if (has_too_many_samples_) return;
    for (const char* key : {"rollout.rollout_batch_size", "rollout.n_samples_per_prompt",
                            "train.global_batch_size", "train.num_steps_per_rollout"}) {
      if (config_.has_fault(key)) return;
    }
    const int64_t samples = run_.rollout.rollout_batch_size * run_.rollout.n_samples_per_prompt;
    const auto& gbs = run_.train.global_batch_size;
    const auto& steps = run_.train.num_steps_per_rollout;
    run_.num_steps_per_rollout = steps.value_or(gbs ? std::max<int64_t>(1, samples / *gbs) : 1);
    run_.global_batch_size = gbs.value_or(samples / run_.num_steps_per_rollout);
    if (run_.global_batch_size * run_.num_steps_per_rollout != samples) {
      fault(
          gbs ? "train.global_batch_size" : "train.num_steps_per_rollout",
          fmt::format(
              "rollout_batch_size {} * n_samples_per_prompt {} = {} is not global_batch_size {} * "
              "num_steps_per_rollout {} = {}",
              run_.rollout.rollout_batch_size, run_.rollout.n_samples_per_prompt, samples,
              run_.global_batch_size, run_.num_steps_per_rollout,
              run_.global_batch_size * run_.num_steps_per_rollout),
          batch_hint(samples));
    }
  }

  config::Config& config_;
  RunConfig& run_;
  bool needs_training_;
  int64_t num_ranks_;
  bool has_too_many_samples_ = false;
  std::optional<RankRoles> roles_;  // set if the ranks are known and consistent
};

}  // namespace

dist::GridSizes grid_sizes(const ParallelOptions& options) {
  const auto size = [](int64_t value) { return static_cast<int>(value); };
  return {.tp = size(options.tensor_model_parallel_size),
          .cp = size(options.context_parallel_size),
          .pp = size(options.pipeline_model_parallel_size),
          .ep = size(options.expert_model_parallel_size),
          .etp = size(
              options.expert_tensor_parallel_size.value_or(options.tensor_model_parallel_size))};
}

model::PipelineSplit pipeline_split(const ParallelOptions& options) {
  return {.num_ranks = static_cast<int>(options.pipeline_model_parallel_size),
          .first_layers = options.decoder_first_pipeline_num_layers,
          .last_layers = options.decoder_last_pipeline_num_layers,
          .layers_per_virtual_stage = options.num_layers_per_virtual_pipeline_stage};
}

namespace {

// Fills in values that default to other keys. Idle keys stay unset, because reading the resolved
// file would refuse them.
void derive_values(const config::Config& config, RunConfig& run) {
  if (!run.rl.eps_clip_high && !run.is_sft()) run.rl.eps_clip_high = run.rl.eps_clip;
  if (run.eval.eval_prompt_data.empty()) return;
  if (!config.is_set("eval.eval_stop")) run.eval.eval_stop = run.rollout.rollout_stop;
  if (!config.is_set("eval.eval_stop_token_ids"))
    run.eval.eval_stop_token_ids = run.rollout.rollout_stop_token_ids;
}

constexpr const char* kRunDir = "observe.run_dir";

// The resolved file shows derived values too.
void write_resolved(config::Config& config, RunConfig& run) {
  config.derive("rl.eps_clip_high", run.rl.eps_clip_high);
  config.derive("eval.eval_stop", run.eval.eval_stop);
  config.derive("eval.eval_stop_token_ids", run.eval.eval_stop_token_ids);
  config.derive(kRunDir, run.observe.run_dir);
  config.derive("numerics.fp8", run.numerics.fp8);
  config.derive("train.global_batch_size", run.train.global_batch_size);
  config.derive("train.num_steps_per_rollout", run.train.num_steps_per_rollout);
  run.resolved_yaml = config.resolved_yaml();
  run.expanded_yaml = config.expanded_yaml();
}

}  // namespace

bool generates_samples(const RunConfig& config) {
  return config.debug.load_rollout.empty() && !config.is_sft();
}

bool needs_engine(const RunConfig& config) {
  return generates_samples(config) || !config.eval.eval_prompt_data.empty();
}

bool needs_reference(const RunConfig& config) {
  const bool is_asked = !config.rl.logs_reference_only() || config.rl.log_ref_kl_interval > 0;
  return !config.model.ref_load.empty() && !config.is_sft() && is_asked &&
         (config.rl.use_kl_loss || config.rl.kl_coef != 0);
}

RunConfig load_run_config(config::Config& config, const RunConfigRequest& request) {
  RunConfig run;
  bind(config.binder(), run);
  derive_values(config, run);
  if (!config.is_set(kRunDir) || config.has_fault(kRunDir))
    run.observe.run_dir = request.default_run_dir;
  Validation(config, run, request).check();
  config.finish();
  if (run.global_batch_size > 0) run.train.global_batch_size = run.global_batch_size;
  if (!run.is_sft() && run.num_steps_per_rollout > 0)
    run.train.num_steps_per_rollout = run.num_steps_per_rollout;
  write_resolved(config, run);
  run.taken_keys = config.taken_keys();
  if (needs_reference(run))
    run.frozen_models.push_back({.name = kReference,
                                 .folder = run.model.ref_load,
                                 .follows_policy = run.rl.ref_update_interval.has_value(),
                                 .scores_rarely = run.rl.logs_reference_only()});
  return run;
}

void set_default_run_dir(config::Config& config, const std::string& run_dir, RunConfig& run) {
  if (!config.is_set(kRunDir)) run.observe.run_dir = run_dir;
  // Check again even if run_dir was set: links into the run folder resolve only once it exists.
  check_folders(config, run);
  config.finish();
  write_resolved(config, run);
}

}  // namespace slimexx::rl
