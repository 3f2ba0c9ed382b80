// The keys of the configuration that have no module of their own; the other keys are in the
// options.cpp of train, rollout and reward, and in rl_options.cpp.
#include "rl/config/fp8_keys.h"
#include "rl/config/rl_options.h"
#include "rl/config/run_config_later.h"
#include "rl/config/speculation.h"
#include "slimexx/rl/run_config.h"

namespace slimexx::rl {
namespace {

using config::Binder;

// Limits of 32-bit values: float32 represents 1e-6 at full precision; token counts and ids are
// int32.
constexpr double kLeast = 1e-6, kMaxInt32 = 2147483647;
constexpr double kMaxSize = 1 << 20;  // ranks of a group
constexpr double kMaxExactInt =
    9007199254740991;  // 2^53 - 1: a double holds all integers up to here

void bind_section(Binder& b, ModelOptions& o) {
  b.begin_section("model", "Checkpoints to start from. The architecture comes from config.json.");
  b.field(
      "hf_checkpoint", o.hf_checkpoint,
      {.doc =
           "Hugging Face folder (config.json, tokenizer, weights) that the policy starts from."});
  b.field(
      "ref_load", o.ref_load,
      {.doc =
           "Hugging Face folder of the frozen reference model for KL terms. On a GPU its weights "
           "are kept in host memory; while it scores, they occupy the memory of the gradients.",
       .when = "a KL term",
       .may_idle = true});
  b.field("load", o.load,
          {.doc = "Checkpoint to continue from. If it holds weights only (made by convert-hf), "
                  "training starts from them. --resume takes precedence."});
  b.field("ckpt_step", o.ckpt_step,
          {.doc = "Step number of the checkpoint in model.load; unset: the newest. A run that goes "
                  "back to an earlier step of its own folder does so once; a restart continues "
                  "from the newest checkpoint.",
           .min = 0,
           .max = kMaxInt32,
           .when = "model.load"});
  b.field("finetune", o.finetune,
          {.doc = "Load only the weights from model.load; optimizer state, data order and rollout "
                  "count start anew.",
           .when = "model.load"});
  b.end_section();
}

void bind_section(Binder& b, DataOptions& o) {
  b.begin_section("data", "Prompts and their order.");
  b.field("prompt_data", o.prompt_data,
          {.doc = "JSON-lines file of prompts (also .zst). A suffix @[start:end] selects a slice "
                  "of the rows.",
           .when = "data are read",
           .may_idle = true});
  b.field("input_key", o.input_key,
          {.doc = "Key of the prompt: a text or a list of messages.",
           .when = "prompts are read",
           .may_idle = true});
  b.field("label_key", o.label_key,
          {.doc = "Key of the label that graders compare responses with; empty: none.",
           .when = "responses are graded",
           .may_idle = true});
  b.field("tool_key", o.tool_key,
          {.doc = "Key of the tool definitions passed to the chat template.",
           .when = "prompts are read",
           .may_idle = true});
  b.field(
      "messages_key", o.messages_key,
      {.doc = "Key of the conversation (loss_type sft).", .slime = "-", .when = "loss_type sft"});
  b.field("response_key", o.response_key,
          {.doc = "Key of the response to the prompt (loss_type sft).",
           .slime = "-",
           .when = "loss_type sft"});
  b.field("apply_chat_template", o.apply_chat_template,
          {.doc = "Render prompts with the checkpoint's chat template; a plain text becomes one "
                  "user message.",
           .when = "prompts are read",
           .may_idle = true});
  b.json_field(
      "apply_chat_template_kwargs", o.apply_chat_template_kwargs,
      {.doc = "Additional variables for the chat template, such as {enable_thinking: false}.",
       .when = "apply_chat_template"});
  b.field(
      "rollout_shuffle", o.rollout_shuffle,
      {.doc = "Shuffle the prompts anew every epoch.", .when = "data are read", .may_idle = true});
  b.field("seed", o.seed,
          {.doc = "Seed for shuffling and sampling.",
           .min = 0,
           .max = kMaxExactInt,
           .slime = "rollout-seed"});
  b.end_section();
}

void bind_sampling(Binder& b, RolloutOptions& o) {
  b.field("rollout_temperature", o.rollout_temperature,
          {.doc = "Sampling temperature. Training divides the logits by it too, for every "
                  "log-prob; loss_type sft trains at 1.",
           .min = kLeast,
           .max = 1 / kLeast,
           .when = "loss_type policy_loss"});
  b.field("rollout_top_p", o.rollout_top_p,
          {.doc = "Nucleus sampling: total probability of the tokens kept; 1: off.",
           .min = kLeast,
           .max = 1,
           .when = "an engine runs",
           .may_idle = true});
  b.field("rollout_top_k", o.rollout_top_k,
          {.doc = "Sample from the k most likely tokens; -1: off.",
           .min = -1,
           .max = kMaxInt32,
           .when = "an engine runs",
           .may_idle = true});
  b.field("rollout_min_p", o.rollout_min_p,
          {.doc = "Drop tokens whose probability is below this fraction of the most likely "
                  "token's; 0: off.",
           .min = 0,
           .max = 1,
           .slime = "-",
           .when = "an engine runs",
           .may_idle = true});
  b.field("rollout_stop", o.rollout_stop,
          {.doc = "Texts that end a response.", .when = "an engine runs", .may_idle = true});
  b.field("rollout_stop_token_ids", o.rollout_stop_token_ids,
          {.doc = "Tokens that end a response, in addition to the checkpoint's (from "
                  "generation_config.json, or config.json if there is none).",
           .min = 0,
           .max = kMaxInt32,
           .when = "an engine runs",
           .may_idle = true});
}

void bind_section(Binder& b, RolloutOptions& o) {
  b.begin_section("rollout", "Generation of responses and the inference engine.");
  b.field(
      "num_rollout", o.num_rollout,
      {.unit = "rollouts", .doc = "Number of rollouts in the run.", .min = 0, .max = kMaxInt32});
  b.field(
      "num_epoch", o.num_epoch,
      {.unit = "epochs",
       .doc = "Passes over the prompts, if num_rollout is unset; a dynamic sampling filter does "
              "not change the number of rollouts. With loss_type sft: passes over the data.",
       .min = 1,
       .max = kMaxInt32,
       .when = "no num_rollout"});
  b.field("rollout_batch_size", o.rollout_batch_size,
          {.unit = "prompts",
           .doc = "Prompts per rollout.",
           .min = 1,
           .max = kMaxInt32,
           .when = "rollouts are generated, or sft has no global_batch_size",
           .may_idle = true});
  b.field("n_samples_per_prompt", o.n_samples_per_prompt,
          {.unit = "samples",
           .doc = "Samples per prompt; together they form a group.",
           .min = 1,
           .max = kMaxInt32,
           .when = "rollouts are generated"});
  b.field(
      "dynamic_sampling_filter_path", o.dynamic_sampling_filter_path,
      {.doc = "check_reward_nonzero_std: drop groups whose samples all got the same reward, and "
              "draw prompts until rollout_batch_size groups are kept, in the order of the prompts. "
              "It compares the grader's rewards, without the penalty of rl.overlong_buffer_len. "
              "check_reward_nonzero_std_with_fallback: draw once, and fill up with dropped groups. "
              "A prefix with slime's module is accepted. Empty: keep all groups.",
       .when = "prompts are drawn"});
  b.field(
      "over_sampling_batch_size", o.over_sampling_batch_size,
      {.unit = "prompts",
       .doc = "Prompts in the first draw with a dynamic sampling filter, and upper bound for later "
              "draws. A later draw has only as many as are likely to yield the missing groups. "
              "Groups beyond rollout_batch_size are discarded. Default: rollout_batch_size.",
       .min = 1,
       .max = kMaxInt32,
       .when = "prompts are drawn"});
  b.field("rollout_max_prompt_len", o.rollout_max_prompt_len,
          {.unit = "tokens",
           .doc = "Drop longer prompts (with loss_type sft: longer examples) when the data is "
                  "read; 0: keep all.",
           .min = 0,
           .max = kMaxInt32,
           .when = "data are read",
           .may_idle = true});
  b.field("rollout_max_response_len", o.rollout_max_response_len,
          {.unit = "tokens",
           .doc = "Maximum length of a response; a response that reaches it is truncated.",
           .min = 1,
           .max = kMaxInt32,
           .when = "an engine runs, or overlong_buffer_len is set",
           .may_idle = true});
  bind_sampling(b, o);
  rollout::bind(b, o);
  bind_quantization(b, o);
  bind_later_rollout(b);
  b.end_section();
}

// The sizes of the grid; run_config.cpp checks them together.
void bind_grid(Binder& b, ParallelOptions& o) {
  const auto size = [&](const char* key, auto& value, const char* doc) {
    b.field(key, value, {.doc = doc, .min = 1, .max = kMaxSize});
  };
  size("tensor_model_parallel_size", o.tensor_model_parallel_size,
       "Tensor parallelism (always with sequence parallelism).");
  size("pipeline_model_parallel_size", o.pipeline_model_parallel_size, "Pipeline stages.");
  size("decoder_first_pipeline_num_layers", o.decoder_first_pipeline_num_layers,
       "Layers of the first pipeline stage; unset: an even share.");
  size("decoder_last_pipeline_num_layers", o.decoder_last_pipeline_num_layers,
       "Layers of the last pipeline stage; unset: an even share.");
  size("num_layers_per_virtual_pipeline_stage", o.num_layers_per_virtual_pipeline_stage,
       "Layers per virtual pipeline stage (interleaved schedule); unset: a rank's layers form one "
       "stage.");
  size("context_parallel_size", o.context_parallel_size,
       "Context parallelism: number of ranks that split the tokens of a sequence.");
  size("expert_model_parallel_size", o.expert_model_parallel_size, "Expert parallelism.");
  size("expert_tensor_parallel_size", o.expert_tensor_parallel_size,
       "Tensor parallelism within experts. Default: tensor_model_parallel_size.");
}

void bind_section(Binder& b, ParallelOptions& o) {
  b.begin_section("parallel",
                  "How ranks divide the work, and time limits for ranks that stop responding.");
  b.field("colocate", o.colocate,
          {.doc = "Every rank trains and generates. false: the first actor_num_gpus ranks train, "
                  "and the next rollout_num_gpus ranks generate."});
  b.field("actor_num_gpus", o.actor_num_gpus,
          {.doc = "Number of ranks that train; with colocate: all ranks.",
           .min = 1,
           .max = kMaxSize,
           .slime = "-"});
  b.field("rollout_num_gpus", o.rollout_num_gpus,
          {.doc = "Number of ranks that generate; with colocate: all ranks.",
           .min = 1,
           .max = kMaxSize});
  b.field("rank_silence_warn_s", o.rank_silence_warn_s,
          {.unit = "s",
           .doc = "Warn about a rank whose process has been stopped for this long; 0: never.",
           .min = 0,
           .max = 1e6,
           .slime = "-"});
  b.field("rank_silence_limit_s", o.rank_silence_limit_s,
          {.unit = "s",
           .doc = "End the run with an error if a rank's process has been stopped for this long; "
                  "0: never.",
           .min = 0,
           .max = 1e6,
           .slime = "-"});
  b.field("host_silence_limit_s", o.host_silence_limit_s,
          {.unit = "s",
           .doc = "End the run if a rank on another host has not updated its heartbeat in the run "
                  "folder for this long while other ranks wait for it; 0: never. Allow for pauses "
                  "of the file server.",
           .min = 0,
           .max = 1e6,
           .slime = "-"});
  b.field(
      "hang_limit_s", o.hang_limit_s,
      {.unit = "s",
       .doc = "End the run if all ranks have waited for each other in collective calls, or made "
              "no progress at all, for this long. The error lists which rank waits for which. "
              "0: only rank_wait_limit_s applies. On several hosts the limit is at least "
              "host_silence_limit_s.",
       .min = 0,
       .max = 1e6,
       .slime = "-"});
  b.field("rank_wait_warn_s", o.rank_wait_warn_s,
          {.unit = "s",
           .doc = "If no rank has made progress for this long, log a warning that says what each "
                  "rank is doing, and again each time the wait has doubled; 0: never.",
           .min = 0,
           .max = 1e6,
           .slime = "-"});
  b.field("rank_wait_limit_s", o.rank_wait_limit_s,
          {.unit = "s",
           .doc = "End the run with an error if no rank has made progress for this long; 0: never.",
           .min = 0,
           .max = 1e6,
           .slime = "-"});
  bind_grid(b, o);
  b.end_section();
}

void bind_section(Binder& b, CheckpointOptions& o) {
  b.begin_section("checkpoint", "Checkpoints on disk.");
  b.field("save", o.save, {.doc = "Folder for checkpoints. Default: <run_dir>/checkpoints."});
  b.field(
      "save_interval", o.save_interval,
      {.unit = "rollouts",
       .doc = "Rollouts between checkpoints; the final state is always saved too. Unset: save only "
              "the final state. 0: save nothing, unless a signal or an error stops the run.",
       .min = 0,
       .max = kMaxInt32});
  b.field("keep_last", o.keep_last,
          {.doc = "Number of newest checkpoints to keep; 0: all.",
           .min = 0,
           .max = kMaxExactInt,
           .slime = "-"});
  b.field("save_hf", o.save_hf,
          {.doc = "Folder for a Hugging Face export of the model when the run ends. It replaces an "
                  "earlier export in that folder."});
  b.field("async_save", o.async_save,
          {.doc = "Write checkpoints in the background while the run continues."});
  b.end_section();
}

void bind_section(Binder& b, EvalOptions& o) {
  b.begin_section("eval", "Evaluation during training and by `slimexx eval`.");
  b.field("eval_interval", o.eval_interval,
          {.unit = "rollouts",
           .doc = "Rollouts between evaluations; the run also evaluates before the first rollout "
                  "and after the last one. 0: no evaluation.",
           .min = 0,
           .max = kMaxInt32});
  b.field("eval_prompt_data", o.eval_prompt_data,
          {.doc = "Evaluation sets: {name: FILE, ...}. A suffix @[start:end] selects a slice of a "
                  "file's rows.",
           .when = "eval_interval",
           .may_idle = true});
  b.field("n_samples_per_eval_prompt", o.n_samples_per_eval_prompt,
          {.unit = "samples",
           .doc = "Samples per prompt.",
           .min = 1,
           .max = train::kMaxSamples,
           .when = "evaluation sets"});
  b.field("eval_max_prompt_len", o.eval_max_prompt_len,
          {.unit = "tokens",
           .doc = "Drop longer prompts when a set is read; 0: keep all.",
           .min = 0,
           .max = kMaxInt32,
           .when = "evaluation sets"});
  b.field("eval_max_response_len", o.eval_max_response_len,
          {.unit = "tokens",
           .doc = "Default: as in training.",
           .min = 1,
           .max = kMaxInt32,
           .when = "evaluation sets"});
  b.field(
      "eval_temperature", o.eval_temperature,
      {.doc = "Sampling temperature; 0: greedy. Default: as in training; with loss_type sft: 1.",
       .min = 0,
       .when = "evaluation sets"});
  b.field("eval_top_p", o.eval_top_p,
          {.doc = "Default: as in training.", .min = kLeast, .max = 1, .when = "evaluation sets"});
  b.field(
      "eval_top_k", o.eval_top_k,
      {.doc = "Default: as in training.", .min = -1, .max = kMaxInt32, .when = "evaluation sets"});
  b.field("eval_min_p", o.eval_min_p,
          {.doc = "Default: as in training.",
           .min = 0,
           .max = 1,
           .slime = "-",
           .when = "evaluation sets"});
  b.field("eval_stop", o.eval_stop,
          {.doc = "Texts that end a response. Default: as in training; []: none.",
           .slime = "-",
           .when = "evaluation sets"});
  b.field("eval_stop_token_ids", o.eval_stop_token_ids,
          {.doc = "Tokens that end a response, in addition to the checkpoint's. Default: as in "
                  "training; []: none.",
           .min = 0,
           .max = kMaxInt32,
           .slime = "-",
           .when = "evaluation sets"});
  b.field("eval_rm_type", o.eval_rm_type,
          {.doc = "Grader of the evaluation. Default: reward.rm_type.",
           .slime = "-",
           .when = "evaluation sets"});
  b.field("eval_reward_key", o.eval_reward_key,
          {.doc = "Default: reward.reward_key.", .when = "evaluation sets"});
  b.field("eval_input_key", o.eval_input_key,
          {.doc = "Default: data.input_key.", .when = "evaluation sets"});
  b.field("eval_label_key", o.eval_label_key,
          {.doc = "Default: data.label_key.", .when = "evaluation sets"});
  b.field("skip_eval_before_train", o.skip_eval_before_train,
          {.doc = "Do not evaluate before the first rollout.", .when = "eval_interval"});
  b.end_section();
}

void bind_section(Binder& b, ObserveOptions& o) {
  b.begin_section("observe", "Logs, metrics and samples that a run writes.");
  b.field("run_dir", o.run_dir,
          {.doc = "The run's folder. Default: runs/<name of the configuration>.", .slime = "-"});
  b.field("tensorboard", o.tensorboard,
          {.doc = "Write TensorBoard events to <run_dir>/tb.", .slime = "use-tensorboard"});
  b.field("trace", o.trace,
          {.doc = "Write a Chrome trace of the run's phases to <run_dir>/trace.", .slime = "-"});
  b.field("log_samples_interval", o.log_samples_interval,
          {.unit = "rollouts",
           .doc = "Rollouts between tables of samples in the log; 0: none.",
           .min = 0,
           .max = kMaxInt32,
           .slime = "-"});
  b.field("samples_interval", o.samples_interval,
          {.unit = "rollouts",
           .doc = "Rollouts between files with all samples, <run_dir>/samples/rollout_N.jsonl.zst; "
                  "`slimexx samples` prints them. 0: none.",
           .min = 0,
           .max = kMaxInt32,
           .slime = "-"});
  b.field("num_log_samples", o.num_log_samples,
          {.doc = "Samples per table (see log_samples_interval).",
           .min = 1,
           .max = kMaxInt32,
           .slime = "-",
           .when = "log_samples_interval",
           .may_idle = true});
  b.end_section();
}

void bind_section(Binder& b, DebugOptions& o) {
  b.begin_section("debug", "Dumps and replays.");
  b.field(
      "load_rollout", o.load_rollout,
      {.doc =
           "Train on the samples of this dump (a file or a folder of files) instead of generating.",
       .slime = "load-debug-rollout-data"});
  b.field("save_rollout", o.save_rollout,
          {.doc = "Folder for a dump of every rollout. It must not hold dumps of another run.",
           .slime = "save-debug-rollout-data"});
  b.field("dump_gradients", o.dump_gradients,
          {.doc = "Write the gradients of the first optimizer step, before clipping, to "
                  "DIR/gradients.safetensors.",
           .slime = "-"});
  b.field("dump_weights", o.dump_weights,
          {.doc = "Write the weights after the first optimizer step to DIR/weights.safetensors.",
           .slime = "-"});
  b.field("random_weights", o.random_weights,
          {.doc = "Start from random weights with the shapes in the config.json of "
                  "model.hf_checkpoint (and model.ref_load) instead of reading weights: to time a "
                  "recipe without its checkpoint. Routers balance tokens over the experts.",
           .slime = "-"});
  b.field("check_weight_hash", o.check_weight_hash,
          {.doc = "After every hand-over of the weights, hash those of the trainer and the engine "
                  "on all ranks, compare them, and log the hash. A difference ends the run with an "
                  "error that names the tensor.",
           .slime = "check-weight-update-equal",
           .when = "an engine runs",
           .may_idle = true});
  b.end_section();
}

void bind_section(Binder& b, NumericsOptions& o) {
  b.begin_section("numerics", "The numeric contract (docs/numerics.md).");
  b.field("on_logprob_mismatch", o.on_logprob_mismatch,
          {.doc = "What to do if a training log-prob differs from the rollout's.",
           .choices = {"fail", "warn", "ignore"},
           .slime = "-",
           .when = "rollouts are generated"});
  b.field("recompute_old_log_probs", o.recompute_old_log_probs,
          {.doc = "Recompute the log-probs of every rollout with a forward pass before training, "
                  "and compare them with the engine's.",
           .slime = "-",
           .when = "loss_type policy_loss"});
  b.field("check_interval", o.check_interval,
          {.unit = "rollouts",
           .doc = "Interval of full checks, if a rollout has several optimizer steps. A full check "
                  "compares the log-probs of all tokens of a rollout; other rollouts compare only "
                  "the tokens of their first step. 0: never.",
           .min = 0,
           .max = kMaxInt32,
           .slime = "-",
           .when = "rollouts are generated"});
  bind_fp8(b, o);
  b.end_section();
}

}  // namespace

void bind(Binder& b, RunConfig& run) {
  bind_section(b, run.model);
  bind_section(b, run.data);
  bind_section(b, run.rollout);
  reward::bind(b, run.reward);
  bind(b, run.rl);
  train::bind(b, run.train);
  train::bind(b, run.optimizer);
  bind_section(b, run.parallel);
  bind_section(b, run.checkpoint);
  bind_section(b, run.eval);
  bind_section(b, run.observe);
  bind_section(b, run.debug);
  bind_section(b, run.numerics);
}

}  // namespace slimexx::rl
