// The keys of the configuration that have no module of their own; the other keys are in the
// options.cpp of train, rollout and reward, and in rl_options.cpp.
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
      {.doc = "Hugging Face folder: config.json, tokenizer, weights; the policy starts from it."});
  b.field("ref_load", o.ref_load,
          {.doc = "Hugging Face folder of the frozen reference model of KL terms. On a GPU its "
                  "weights lie in host memory, and in place of gradients while it scores.",
           .when = "a KL term",
           .may_idle = true});
  b.field(
      "load", o.load,
      {.doc =
           "Checkpoint to continue from; of one that holds weights only (convert-hf), the weights. "
           "--resume comes first."});
  b.field("ckpt_step", o.ckpt_step,
          {.doc = "The checkpoint of this number in load; left out: the newest. A run that went "
                  "back to it in its own folder does not do so again when it is started again.",
           .min = 0,
           .max = kMaxInt32,
           .when = "model.load"});
  b.field("finetune", o.finetune,
          {.doc = "Take the weights of load alone: optimizer, data and rollouts begin anew.",
           .when = "model.load"});
  b.end_section();
}

void bind_section(Binder& b, DataOptions& o) {
  b.begin_section("data", "Prompts, and their order.");
  b.field("prompt_data", o.prompt_data,
          {.doc = "JSON lines of prompts (.zst accepted); a suffix @[start:end] takes a slice of "
                  "the rows.",
           .when = "data are read",
           .may_idle = true});
  b.field("input_key", o.input_key,
          {.doc = "Key of the prompt: a text or a list of messages.",
           .when = "prompts are read",
           .may_idle = true});
  b.field("label_key", o.label_key,
          {.doc = "Key of the label that rewards compare with; empty: none.",
           .when = "responses are graded",
           .may_idle = true});
  b.field("tool_key", o.tool_key,
          {.doc = "Key of the tools given to the chat template.",
           .when = "prompts are read",
           .may_idle = true});
  b.field("messages_key", o.messages_key,
          {.doc = "Key of the conversation under loss_type sft.",
           .slime = "-",
           .when = "loss_type sft"});
  b.field("response_key", o.response_key,
          {.doc = "Key of the response that goes with a prompt under loss_type sft.",
           .slime = "-",
           .when = "loss_type sft"});
  b.field(
      "apply_chat_template", o.apply_chat_template,
      {.doc =
           "Render prompts with the checkpoint's chat template; a text becomes one user message.",
       .when = "prompts are read",
       .may_idle = true});
  b.json_field("apply_chat_template_kwargs", o.apply_chat_template_kwargs,
               {.doc = "More variables for the chat template, such as {enable_thinking: false}.",
                .when = "apply_chat_template"});
  b.field(
      "rollout_shuffle", o.rollout_shuffle,
      {.doc = "Shuffle the prompts anew every epoch.", .when = "data are read", .may_idle = true});
  b.field("seed", o.seed,
          {.doc = "Seed of shuffling and sampling.",
           .min = 0,
           .max = kMaxExactInt,
           .slime = "rollout-seed"});
  b.end_section();
}

void bind_sampling(Binder& b, RolloutOptions& o) {
  b.field(
      "rollout_temperature", o.rollout_temperature,
      {.doc = "Divides the logits, in sampling and in every log-prob of training; loss_type sft "
              "trains at 1.",
       .min = kLeast,
       .max = 1 / kLeast,
       .when = "loss_type policy_loss"});
  b.field("rollout_top_p", o.rollout_top_p,
          {.doc = "Nucleus sampling; 1: off.",
           .min = kLeast,
           .max = 1,
           .when = "an engine runs",
           .may_idle = true});
  b.field("rollout_top_k", o.rollout_top_k,
          {.doc = "Sample from the k likeliest tokens; -1: off.",
           .min = -1,
           .max = kMaxInt32,
           .when = "an engine runs",
           .may_idle = true});
  b.field("rollout_min_p", o.rollout_min_p,
          {.doc = "Drop tokens less likely than this share of the likeliest; 0: off.",
           .min = 0,
           .max = 1,
           .slime = "-",
           .when = "an engine runs",
           .may_idle = true});
  b.field("rollout_stop", o.rollout_stop,
          {.doc = "Texts that end a response.", .when = "an engine runs", .may_idle = true});
  b.field(
      "rollout_stop_token_ids", o.rollout_stop_token_ids,
      {.doc = "Tokens that end a response, besides the checkpoint's own (generation_config.json, "
              "else config.json).",
       .min = 0,
       .max = kMaxInt32,
       .when = "an engine runs",
       .may_idle = true});
}

void bind_section(Binder& b, RolloutOptions& o) {
  b.begin_section("rollout", "What is generated, and the engine that does it.");
  b.field("num_rollout", o.num_rollout,
          {.unit = "rollouts", .doc = "Rollouts of the run.", .min = 0, .max = kMaxInt32});
  b.field(
      "num_epoch", o.num_epoch,
      {.unit = "epochs",
       .doc =
           "Passes over the prompts, where num_rollout is absent; under a dynamic sampling filter "
           "as many rollouts as if it dropped nothing. Under loss_type sft passes over the data.",
       .min = 1,
       .max = kMaxInt32,
       .when = "no num_rollout"});
  b.field("rollout_batch_size", o.rollout_batch_size,
          {.unit = "prompts",
           .doc = "Prompts of one rollout.",
           .min = 1,
           .max = kMaxInt32,
           .when = "rollouts are generated, or sft has no global_batch_size",
           .may_idle = true});
  b.field("n_samples_per_prompt", o.n_samples_per_prompt,
          {.unit = "samples",
           .doc = "Samples of one prompt: its group.",
           .min = 1,
           .max = kMaxInt32,
           .when = "rollouts are generated"});
  b.field("dynamic_sampling_filter_path", o.dynamic_sampling_filter_path,
          {.doc = "check_reward_nonzero_std: groups whose samples all got the same reward are "
                  "dropped, and prompts are drawn until rollout_batch_size groups are kept, in the "
                  "prompts' order. Rewards are the grader's, without the penalty of "
                  "rl.overlong_buffer_len. check_reward_nonzero_std_with_fallback: the first draw "
                  "is filled "
                  "up with what was dropped. slime's module may stand before the name. Empty: all "
                  "groups are kept.",
           .when = "prompts are drawn"});
  b.field("over_sampling_batch_size", o.over_sampling_batch_size,
          {.unit = "prompts",
           .doc = "Prompts of the first draw under a dynamic sampling filter, and at most of later "
                  "ones, which have as many as are likely to hold what is missing. What is kept "
                  "above rollout_batch_size is not used. Default: rollout_batch_size.",
           .min = 1,
           .max = kMaxInt32,
           .when = "prompts are drawn"});
  b.field("rollout_max_prompt_len", o.rollout_max_prompt_len,
          {.unit = "tokens",
           .doc = "Longer prompts are dropped when the data is read, under loss_type sft longer "
                  "examples; 0: all are kept.",
           .min = 0,
           .max = kMaxInt32,
           .when = "data are read",
           .may_idle = true});
  b.field("rollout_max_response_len", o.rollout_max_response_len,
          {.unit = "tokens",
           .doc = "A response that reaches it is truncated.",
           .min = 1,
           .max = kMaxInt32,
           .when = "an engine runs, or overlong_buffer_len",
           .may_idle = true});
  bind_sampling(b, o);
  rollout::bind(b, o);
  bind_later_rollout(b);
  b.end_section();
}

// The sizes of the grid; run_config.cpp checks them together.
void bind_grid(Binder& b, ParallelOptions& o) {
  const auto size = [&](const char* key, auto& value, const char* doc) {
    b.field(key, value, {.doc = doc, .min = 1, .max = kMaxSize});
  };
  size("tensor_model_parallel_size", o.tensor_model_parallel_size,
       "Tensor parallelism, with sequence parallelism.");
  size("pipeline_model_parallel_size", o.pipeline_model_parallel_size, "Pipeline stages.");
  size("decoder_first_pipeline_num_layers", o.decoder_first_pipeline_num_layers,
       "Layers of the first stage; unset: an even share.");
  size("decoder_last_pipeline_num_layers", o.decoder_last_pipeline_num_layers,
       "Layers of the last stage; unset: an even share.");
  size("num_layers_per_virtual_pipeline_stage", o.num_layers_per_virtual_pipeline_stage,
       "Layers of an interleaved stage; unset: a rank's layers are one stage.");
  size("context_parallel_size", o.context_parallel_size,
       "Context parallelism: the tokens of a sequence over so many ranks.");
  size("expert_model_parallel_size", o.expert_model_parallel_size, "Expert parallelism.");
  size("expert_tensor_parallel_size", o.expert_tensor_parallel_size,
       "Tensor parallelism within experts; default tensor_model_parallel_size.");
}

void bind_section(Binder& b, ParallelOptions& o) {
  b.begin_section("parallel", "The grid of ranks.");
  b.field("colocate", o.colocate,
          {.doc = "Every rank trains and generates; false: the first actor_num_gpus ranks train, "
                  "the rollout_num_gpus behind them generate."});
  b.field("actor_num_gpus", o.actor_num_gpus,
          {.doc = "Ranks that train; with colocate all that were started.",
           .min = 1,
           .max = kMaxSize,
           .slime = "-"});
  b.field("rollout_num_gpus", o.rollout_num_gpus,
          {.doc = "Ranks that generate; with colocate all that were started.",
           .min = 1,
           .max = kMaxSize});
  b.field(
      "rank_silence_warn_s", o.rank_silence_warn_s,
      {.unit = "s",
       .doc = "A rank whose process has been stopped for so long is named in a warning; 0 never "
              "does.",
       .min = 0,
       .max = 1e6,
       .slime = "-"});
  b.field("rank_silence_limit_s", o.rank_silence_limit_s,
          {.unit = "s",
           .doc = "After so long the run ends with an error that names the rank; 0 waits for ever.",
           .min = 0,
           .max = 1e6,
           .slime = "-"});
  b.field(
      "host_silence_limit_s", o.host_silence_limit_s,
      {.unit = "s",
       .doc = "A rank on another host that gives no sign through the run folder for so long, "
              "while others wait for it, ends the run; 0 waits for ever. File servers may pause.",
       .min = 0,
       .max = 1e6,
       .slime = "-"});
  b.field("hang_limit_s", o.hang_limit_s,
          {.unit = "s",
           .doc = "When all ranks wait for one another in collective calls, or do nothing at all, "
                  "for so long, the run ends with an error that says who waits for whom; 0 leaves "
                  "it to rank_wait_limit_s. With several hosts not before host_silence_limit_s.",
           .min = 0,
           .max = 1e6,
           .slime = "-"});
  b.field("rank_wait_warn_s", o.rank_wait_warn_s,
          {.unit = "s",
           .doc = "When no rank has gone on for so long, a warning says what each of them does, "
                  "again after twice the time; 0 never does.",
           .min = 0,
           .max = 1e6,
           .slime = "-"});
  b.field("rank_wait_limit_s", o.rank_wait_limit_s,
          {.unit = "s",
           .doc = "When no rank has gone on for so long, the run ends with an error; 0 waits for "
                  "ever.",
           .min = 0,
           .max = 1e6,
           .slime = "-"});
  bind_grid(b, o);
  b.end_section();
}

void bind_section(Binder& b, CheckpointOptions& o) {
  b.begin_section("checkpoint", "What is kept on disk.");
  b.field("save", o.save, {.doc = "Folder of checkpoints; default <run_dir>/checkpoints."});
  b.field("save_interval", o.save_interval,
          {.unit = "rollouts",
           .doc = "Rollouts between checkpoints; the last state is saved too. Without it, the "
                  "last state alone; 0: nothing, unless a signal or an error stops the run.",
           .min = 0,
           .max = kMaxInt32});
  b.field("keep_last", o.keep_last,
          {.doc = "Checkpoints kept; 0: all.", .min = 0, .max = kMaxExactInt, .slime = "-"});
  b.field("save_hf", o.save_hf,
          {.doc = "Hugging Face folder written when the run ends; an earlier export of the "
                  "model there is replaced."});
  b.field("async_save", o.async_save, {.doc = "Write checkpoints while the run goes on."});
  b.end_section();
}

void bind_section(Binder& b, EvalOptions& o) {
  b.begin_section("eval", "Evaluation during training and by `slimexx eval`.");
  b.field(
      "eval_interval", o.eval_interval,
      {.unit = "rollouts",
       .doc = "Rollouts between evaluations, besides one before the first and one after the last; "
              "0: none.",
       .min = 0,
       .max = kMaxInt32});
  b.field("eval_prompt_data", o.eval_prompt_data,
          {.doc = "Sets: {name: FILE, ...}; a file may have a suffix @[start:end].",
           .when = "eval_interval",
           .may_idle = true});
  b.field("n_samples_per_eval_prompt", o.n_samples_per_eval_prompt,
          {.unit = "samples",
           .doc = "Samples of one prompt.",
           .min = 1,
           .max = train::kMaxSamples,
           .when = "evaluation sets"});
  b.field("eval_max_prompt_len", o.eval_max_prompt_len,
          {.unit = "tokens",
           .doc = "Longer prompts are dropped when a set is read; 0: all are kept.",
           .min = 0,
           .max = kMaxInt32,
           .when = "evaluation sets"});
  b.field("eval_max_response_len", o.eval_max_response_len,
          {.unit = "tokens",
           .doc = "Default: as in training.",
           .min = 1,
           .max = kMaxInt32,
           .when = "evaluation sets"});
  b.field("eval_temperature", o.eval_temperature,
          {.doc = "Default: as in training, under loss_type sft 1; 0: greedy.",
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
          {.doc = "Tokens that end a response, besides the checkpoint's own. Default: as in "
                  "training; []: none.",
           .min = 0,
           .max = kMaxInt32,
           .slime = "-",
           .when = "evaluation sets"});
  b.field("eval_rm_type", o.eval_rm_type,
          {.doc = "Grader of the evaluation; default reward.rm_type.",
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
  b.begin_section("observe", "What a run reports.");
  b.field("run_dir", o.run_dir,
          {.doc = "The run's folder; default runs/<name of the configuration>.", .slime = "-"});
  b.field("tensorboard", o.tensorboard,
          {.doc = "Write TensorBoard events to <run_dir>/tb.", .slime = "use-tensorboard"});
  b.field("trace", o.trace,
          {.doc = "Write a Chrome trace of the spans to <run_dir>/trace.", .slime = "-"});
  b.field("log_samples_interval", o.log_samples_interval,
          {.unit = "rollouts",
           .doc = "Rollouts between tables of samples; 0: none.",
           .min = 0,
           .max = kMaxInt32,
           .slime = "-"});
  b.field("samples_interval", o.samples_interval,
          {.unit = "rollouts",
           .doc = "Rollouts between files of all samples, <run_dir>/samples/rollout_N.jsonl.zst, "
                  "which `slimexx samples` prints; 0: none.",
           .min = 0,
           .max = kMaxInt32,
           .slime = "-"});
  b.field("num_log_samples", o.num_log_samples,
          {.doc = "Rows of such a table.",
           .min = 1,
           .max = kMaxInt32,
           .slime = "-",
           .when = "log_samples_interval",
           .may_idle = true});
  b.end_section();
}

void bind_section(Binder& b, DebugOptions& o) {
  b.begin_section("debug", "Dumps and replays.");
  b.field("load_rollout", o.load_rollout,
          {.doc = "Train on this dump (a file, or a folder of them) instead of generating.",
           .slime = "load-debug-rollout-data"});
  b.field("save_rollout", o.save_rollout,
          {.doc = "Folder for a dump of every rollout, without another run's.",
           .slime = "save-debug-rollout-data"});
  b.field("dump_gradients", o.dump_gradients,
          {.doc = "Write the gradients of the first optimizer step, before clipping, to "
                  "DIR/gradients.safetensors.",
           .slime = "-"});
  b.field("dump_weights", o.dump_weights,
          {.doc = "Write the weights after the first optimizer step to DIR/weights.safetensors.",
           .slime = "-"});
  b.field("random_weights", o.random_weights,
          {.doc = "Start from random weights of the shapes that model.hf_checkpoint's config.json "
                  "names, and ref_load's, and read none: to time a recipe without its checkpoint. "
                  "Routers send about as many tokens to one expert as to another.",
           .slime = "-"});
  b.field("check_weight_hash", o.check_weight_hash,
          {.doc = "After every hand-over, hash the weights of trainer and engine on all ranks, "
                  "compare, and log the hash; a difference ends the run and names the tensor.",
           .slime = "check-weight-update-equal",
           .when = "an engine runs",
           .may_idle = true});
  b.end_section();
}

void bind_section(Binder& b, NumericsOptions& o) {
  b.begin_section("numerics", "The numeric contract (docs/numerics.md).");
  b.field("on_logprob_mismatch", o.on_logprob_mismatch,
          {.doc = "What to do when a training log-prob differs from the rollout's.",
           .choices = {"fail", "warn", "ignore"},
           .slime = "-",
           .when = "rollouts are generated"});
  b.field(
      "recompute_old_log_probs", o.recompute_old_log_probs,
      {.doc =
           "Compute the log-probs of every rollout by a forward pass before training, and compare "
           "them.",
       .slime = "-",
       .when = "loss_type policy_loss"});
  b.field("check_interval", o.check_interval,
          {.unit = "rollouts",
           .doc = "Do that every so many rollouts of several optimizer steps, of which only the "
                  "first compares its tokens by itself; 0 never does.",
           .min = 0,
           .max = kMaxInt32,
           .slime = "-",
           .when = "rollouts are generated"});
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
