// The whole configuration of a run: one struct per section of the YAML tree
// (docs/reference/config.md). load_run_config parses, completes and checks it; nothing else reads
// YAML.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "slimexx/config/config.h"
#include "slimexx/dist/process_grid.h"
#include "slimexx/model/stages.h"
#include "slimexx/reward/rewards.h"
#include "slimexx/rollout/options.h"
#include "slimexx/train/options.h"

namespace slimexx::rl {

struct ModelOptions {
  std::string hf_checkpoint, ref_load, load;
  std::optional<int64_t> ckpt_step;  // step of `load`
  bool finetune = false;             // take only the weights of `load`
};

struct DataOptions {
  std::string prompt_data, input_key = "prompt", label_key = "label", tool_key = "tools",
                           messages_key = "messages", response_key = "response";
  bool apply_chat_template = false, rollout_shuffle = false;
  std::string apply_chat_template_kwargs;  // JSON object
  int64_t seed = 42;
};

struct RolloutOptions : rollout::EngineKeys {
  std::optional<int64_t> num_rollout;
  std::optional<int64_t> num_epoch;
  int64_t rollout_batch_size = 32, n_samples_per_prompt = 1;
  std::optional<int64_t> over_sampling_batch_size;  // unset: rollout_batch_size
  std::string dynamic_sampling_filter_path;         // see dynamic_sampling.h; empty: none
  int64_t rollout_max_prompt_len = 0, rollout_max_response_len = 8192;
  double rollout_temperature = 1.0, rollout_top_p = 1.0, rollout_min_p = 0.0;
  int64_t rollout_top_k = -1;
  std::vector<std::string> rollout_stop;
  std::vector<int64_t> rollout_stop_token_ids;
  std::string quantization = "none";
};

struct RlOptions {
  std::string advantage_estimator = "grpo";
  bool rewards_normalization = true, grpo_std_normalization = true, normalize_advantages = false;
  double gamma = 1.0;
  double eps_clip = 0.2;
  std::optional<double> eps_clip_high, eps_clip_c;
  bool use_kl_loss = false, use_unbiased_kl = false;
  double kl_loss_coef = 0.0, kl_coef = 0.0;
  std::string kl_loss_type = "k1";
  // The KL to the reference is only logged, every log_ref_kl_interval rollouts: it has no effect on
  // training.
  bool logs_reference_only() const { return use_kl_loss && kl_loss_coef == 0 && kl_coef == 0; }
  int64_t log_ref_kl_interval = 10;  // rollouts; used if all KL coefficients are 0; 0: never
  std::optional<int64_t> ref_update_interval;  // rollouts; unset: the reference never changes
  double entropy_coef = 0.0;
  bool per_token_loss = false;
  std::optional<int64_t> loss_token_divisor;
  bool overlong_filtering = false;
  int64_t overlong_buffer_len = 0;  // tokens before the limit; 0: no penalty
  double overlong_penalty_factor = 1.0;
  bool use_tis = false;
  std::string tis_mode = "truncate";
  double tis_clip = 2.0, tis_clip_low = 0.0;
  bool use_opsm = false;
  double opsm_delta = 1e-4;
};

struct ParallelOptions {
  bool colocate = true;  // see RankRoles
  std::optional<int64_t> actor_num_gpus, rollout_num_gpus;
  int64_t tensor_model_parallel_size = 1, pipeline_model_parallel_size = 1,
          context_parallel_size = 1, expert_model_parallel_size = 1;
  std::optional<int64_t> expert_tensor_parallel_size;  // unset: tensor_model_parallel_size
  std::optional<int64_t> decoder_first_pipeline_num_layers, decoder_last_pipeline_num_layers,
      num_layers_per_virtual_pipeline_stage;
  double rank_silence_warn_s = 2, rank_silence_limit_s = 5, host_silence_limit_s = 60,
         hang_limit_s = 7, rank_wait_warn_s = 120, rank_wait_limit_s = 3600;
};

// The grid that the keys ask for.
dist::GridSizes grid_sizes(const ParallelOptions& options);
model::PipelineSplit pipeline_split(const ParallelOptions& options);

struct CheckpointOptions {
  std::string save;                      // folder of checkpoints; empty: <run_dir>/checkpoints
  std::optional<int64_t> save_interval;  // unset: at the end of the run; 0: only if interrupted
  int64_t keep_last = 3;
  std::string save_hf;  // Hugging Face folder written when the run ends
  bool async_save = true;
};

struct EvalOptions {
  int64_t eval_interval = 0;
  std::vector<std::pair<std::string, std::string>> eval_prompt_data;
  int64_t n_samples_per_eval_prompt = 1;
  int64_t eval_max_prompt_len = 0;
  std::optional<int64_t> eval_max_response_len;
  std::optional<double> eval_temperature, eval_top_p, eval_min_p;
  std::optional<int64_t> eval_top_k;
  // load_run_config fills these with the values for rollouts if the configuration does not set
  // them.
  std::vector<std::string> eval_stop;
  std::vector<int64_t> eval_stop_token_ids;
  std::string eval_rm_type, eval_reward_key, eval_input_key, eval_label_key;
  bool skip_eval_before_train = false;
};

struct ObserveOptions {
  std::string run_dir;
  bool tensorboard = true, trace = false;
  int64_t log_samples_interval = 10, num_log_samples = 3, samples_interval = 10;
};

struct DebugOptions {
  std::string load_rollout, save_rollout, dump_gradients, dump_weights;
  bool random_weights = false, check_weight_hash = false;
};

struct NumericsOptions {
  std::string on_logprob_mismatch = "fail";
  bool recompute_old_log_probs = false;
  int64_t check_interval = 20;
  std::string fp8 = "auto", fp8_scale_fmt = "auto";  // see fp8_choice.h
  std::string fp8_format = "none", fp8_recipe = "none";
};

// A model that only scores, beside the policy.
struct FrozenModelOptions {
  std::string name;             // in messages and tables, such as "reference"
  std::string folder;           // Hugging Face folder
  bool follows_policy = false;  // updated from the policy at intervals, and saved in checkpoints
  bool scores_rarely = false;   // not in every rollout
};
inline constexpr const char* kReference = "reference";

struct RunConfig {
  ModelOptions model;
  DataOptions data;
  RolloutOptions rollout;
  reward::RewardOptions reward;
  RlOptions rl;
  train::TrainOptions train;
  train::OptimizerOptions optimizer;
  ParallelOptions parallel;
  CheckpointOptions checkpoint;
  EvalOptions eval;
  ObserveOptions observe;
  DebugOptions debug;
  NumericsOptions numerics;

  // Derived by load_run_config. With debug.load_rollout, global_batch_size and
  // num_steps_per_rollout are 0 if only the dump can tell them.
  int64_t global_batch_size = 0, num_steps_per_rollout = 1;
  std::string resolved_yaml, expanded_yaml;  // see config::Config
  std::vector<config::TakenKey> taken_keys;  // keys in the file that have no effect
  // One entry per frozen model; a run and its plan build all of them.
  std::vector<FrozenModelOptions> frozen_models;
  bool is_sft() const { return train.loss_type == "sft"; }
  // Training and rollouts divide logits by this temperature.
  double training_temperature() const { return is_sft() ? 1.0 : rollout.rollout_temperature; }
};

struct RunConfigRequest {
  bool needs_training = true;  // false: keys that only training needs may be missing (for `eval`)
  int64_t num_ranks = 0;       // ranks that were started; 0: unknown, not compared
  std::string default_run_dir = {};  // used if nothing sets observe.run_dir
};

// Binds all sections, derives the batch sizes and checks everything. Throws one Error(kUsage) with
// all faults: unknown keys, wrong values, contradictions.
RunConfig load_run_config(config::Config& config, const RunConfigRequest& request);
// Replaces the default run folder of a run that `config` loaded, unless the configuration names
// one. Throws Error(kUsage) if the folder is in conflict with other folders of the run.
void set_default_run_dir(config::Config& config, const std::string& run_dir, RunConfig& run);
void bind(config::Binder& binder, RunConfig& run);  // all sections, for docs/reference too

bool generates_samples(const RunConfig& config);  // false: samples come from a dump or examples
bool needs_engine(const RunConfig& config);       // on the ranks that generate
bool needs_reference(const RunConfig& config);

}  // namespace slimexx::rl
