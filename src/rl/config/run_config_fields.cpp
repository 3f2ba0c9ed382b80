// Every key of the configuration but those of `train` and `optimizer` (src/train/options.cpp).
#include "rl/advantage/estimators.h"
#include "rl/config/run_config_later.h"
#include "rl/config/speculation.h"
#include "slimexx/rl/run_config.h"

namespace slimexx::rl {
namespace {

using config::Binder;

// What is computed in 32 bits: float32 tells 1e-6 from zero with all its digits, token counts and
// ids are int32.
constexpr double kLeast = 1e-6, kMaxInt32 = 2147483647;
constexpr double kMaxSize = 1 << 20;  // of a group of ranks
constexpr double kMaxGib = 1e6, kMaxFactor = 1e6;
constexpr double kMaxExactInt = 9007199254740991;  // 2^53 - 1, which a double tells from the next

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

void bind_engine(Binder& b, RolloutOptions& o) {
  b.field("page_size", o.page_size,
          {.unit = "tokens",
           .doc = "Tokens of one page of the KV cache.",
           .min = 1,
           .max = 4096,
           .slime = "sglang-page-size",
           .when = "an engine runs",
           .may_idle = true});
  b.field("max_running_requests", o.max_running_requests,
          {.unit = "samples",
           .doc = "Samples that an engine decodes at once; each of dp_size groups an even share.",
           .min = 1,
           .max = kMaxInt32,
           .slime = "sglang-max-running-requests",
           .when = "an engine runs",
           .may_idle = true});
  b.field(
      "chunked_prefill_size", o.chunked_prefill_size,
      {.unit = "tokens",
       .doc = "Tokens of one forward of the engine, decode and prefill together; each of dp_size "
              "groups an even share.",
       .min = 1,
       .max = kMaxInt32,
       .slime = "sglang-chunked-prefill-size",
       .when = "an engine runs",
       .may_idle = true});
  b.field(
      "max_total_tokens", o.max_total_tokens,
      {.unit = "tokens",
       .doc =
           "Capacity of the KV cache of an engine's attention group; 0: what kv_cache_gib holds.",
       .min = 0,
       .max = kMaxInt32,
       .slime = "sglang-max-total-tokens",
       .when = "an engine runs",
       .may_idle = true});
  b.field("kv_cache_gib", o.kv_cache_gib,
          {.unit = "GiB",
           .doc = "Memory of a rank's keys and values. Left out: 1 on the CPU; on a GPU what "
                  "is left of mem_fraction_static.",
           .min = 0,
           .max = kMaxGib,
           .min_exclusive = true,
           .slime = "-",
           .when = "an engine runs",
           .may_idle = true});
  b.field("disable_radix_cache", o.disable_radix_cache,
          {.doc = "Do not share the keys and values of common prefixes.",
           .slime = "sglang-disable-radix-cache",
           .when = "an engine runs",
           .may_idle = true});
  b.field(
      "mem_fraction_static", o.mem_fraction_static,
      {.doc = "Share of a GPU's memory that the program may take: weights, gradients, optimizer, "
              "and what is left for keys, values and activations, which take turns in it. No "
              "effect on the CPU.",
       .min = 0,
       .max = 1,
       .min_exclusive = true,
       .slime = "sglang-mem-fraction-static"});
}

// The sizes that make_engine_shape checks together.
void bind_engine_ranks(Binder& b, RolloutOptions& o) {
  b.field("rollout_num_gpus_per_engine", o.rollout_num_gpus_per_engine,
          {.unit = "ranks",
           .doc = "Consecutive ranks of one engine. Divided by dp_size they are attention's tensor "
                  "parallelism, which is training's, or 1, or any where training's is 1.",
           .min = 1,
           .max = kMaxSize,
           .when = "an engine runs",
           .may_idle = true});
  b.field("enable_dp_attention", o.enable_dp_attention,
          {.doc = "Data-parallel attention: an engine's ranks form dp_size groups, each with "
                  "requests and keys and values of its own.",
           .slime = "sglang-enable-dp-attention",
           .when = "an engine runs",
           .may_idle = true});
  b.field("dp_size", o.dp_size,
          {.doc = "Attention groups of an engine; more than 1 needs enable_dp_attention.",
           .min = 1,
           .max = kMaxSize,
           .slime = "sglang-dp-size",
           .when = "an engine runs",
           .may_idle = true});
  b.field("ep_size", o.ep_size,
          {.doc = "Expert parallelism: every so many ranks of an engine hold all the experts. It "
                  "divides rollout_num_gpus_per_engine; experts need not divide by it.",
           .min = 1,
           .max = kMaxSize,
           .slime = "sglang-ep-size",
           .when = "an engine runs",
           .may_idle = true});
  b.field("ep_num_redundant_experts", o.ep_num_redundant_experts,
          {.doc = "Experts that ep_size ranks keep once more, from the first one on; ranks take "
                  "turns in which copy they use.",
           .min = 0,
           .max = kMaxSize,
           .slime = "sglang-ep-num-redundant-experts",
           .when = "an engine runs",
           .may_idle = true});
  b.field(
      "moe_dense_tp_size", o.moe_dense_tp_size,
      {.doc = "Tensor parallelism of dense layers and shared experts: attention's, which is the "
              "default, or 1, where every rank has all of them.",
       .min = 1,
       .max = kMaxSize,
       .slime = "sglang-moe-dense-tp-size",
       .when = "an engine runs",
       .may_idle = true});
  b.field("enable_dp_lm_head", o.enable_dp_lm_head,
          {.doc = "Embedding and head split over the ranks of one attention group, as they always "
                  "are; wants enable_dp_attention.",
           .slime = "sglang-enable-dp-lm-head",
           .when = "an engine runs",
           .may_idle = true});
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
  bind_engine(b, o);
  bind_engine_ranks(b, o);
  bind_speculation(b, o);
  bind_later_rollout(b);
  b.end_section();
}

void bind_section(Binder& b, reward::RewardOptions& o) {
  b.begin_section("reward", "What a response is worth.");
  std::vector<std::string> names;
  std::vector<std::pair<std::string, std::string>> refused = {
      {"remote_rm", "here it is remote"}, {"ifbench", "planned: instruction-following rules"}};
  for (const auto& info : reward::list_rewards()) {
    names.push_back(info.name);
    if (info.instead_of_boxed.empty()) {
      names.push_back("boxed_" + info.name);
    } else {
      refused.push_back(
          {"boxed_" + info.name, "no response can be right: " + info.instead_of_boxed});
    }
  }
  b.field("rm_type", o.rm_type,
          {.doc = "The grader; docs/howto/reward.md lists them.",
           .choices = names,
           .refused_choices = refused,
           .when = "responses are graded",
           .may_idle = true});
  b.field("reward_key", o.reward_key,
          {.doc = "Take this value of the grader's as the reward, such as dapo's score.",
           .when = "responses are graded",
           .may_idle = true});
  b.field(
      "rm_url", o.rm_url,
      {.doc =
           "Where `remote` posts prompt, response, label and metadata. Neither logs nor "
           "config.resolved.yaml show its user, password and query; write ${env:NAME} for what is "
           "secret, which stays so in that file.",
       .when = "responses are graded",
       .may_idle = true,
       .is_address = true});
  b.field("rm_timeout_s", o.rm_timeout_s,
          {.unit = "s",
           .doc = "Time-out of one request.",
           .min = 0,
           .max = 86400,
           .min_exclusive = true,
           .slime = "-",
           .when = "responses are graded",
           .may_idle = true});
  b.field("rm_retries", o.rm_retries,
          {.doc = "Tries of one request, the first included.",
           .min = 1,
           .max = kMaxInt32,
           .slime = "-",
           .when = "responses are graded",
           .may_idle = true});
  b.field("rm_max_connections", o.rm_max_connections,
          {.doc = "Requests under way at once.",
           .min = 1,
           .max = 65536,
           .slime = "-",
           .when = "responses are graded",
           .may_idle = true});
  b.field("on_failure", o.on_failure,
          {.doc = "What to do with a sample that the grader has no score for. mask: train without "
                  "it, and leave it out of its group's statistics; stop: end the run. A rollout of "
                  "such samples alone, or a service that cannot be reached, ends the run anyway.",
           .choices = {"mask", "stop"},
           .slime = "-",
           .when = "responses are graded",
           .may_idle = true});
  b.end_section();
}

// Which tokens count in the loss, and how much.
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

void bind_section(Binder& b, RlOptions& o) {
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

// The sizes of the grid, which run_config.cpp checks together.
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
  bind_section(b, run.reward);
  bind_section(b, run.rl);
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
