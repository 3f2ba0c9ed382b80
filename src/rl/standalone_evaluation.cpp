// `slimexx eval`: one model, several sets, no training.
#include <fmt/format.h>

#include <algorithm>

#include "label_trial.h"
#include "sample_source.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/log.h"
#include "slimexx/dist/world.h"
#include "slimexx/rl/engine_shape.h"
#include "slimexx/rl/evaluation.h"
#include "slimexx/rl/loaded_model.h"
#include "slimexx/rl/training.h"
#include "speculation.h"

namespace slimexx::rl {

std::vector<EvalResult> run_evaluation(RunConfig config, tensor::Device device,
                                       dist::World& world) {
  if (config.eval.eval_prompt_data.empty()) {
    throw Error(ErrorCode::kUsage, "there is nothing to evaluate on",
                "--data [NAME=]FILE, or eval.eval_prompt_data in the configuration");
  }
  // Every rank's engine runs the whole model, with the sums of a training run's grid.
  const ModelRanks ranks = make_model_ranks(world, {});
  const LoadedModel policy =
      load_model(config.model.hf_checkpoint, device, false, world.rank() == 0, &ranks);
  check_speculation(config.rollout, policy.spec, config.model.hf_checkpoint);
  const auto stop = join_stop_tokens(policy.eos_token_ids, policy.spec.vocab_size,
                                     config.rollout.rollout_stop_token_ids);
  const TextSide text = load_text_side(config.model.hf_checkpoint);
  if (text.tokenizer == nullptr) {
    throw Error(ErrorCode::kUsage, "the checkpoint has no tokenizer.json", "add one to the folder",
                policy.directory);
  }
  const auto sets = load_eval_sets(config, text.tokenizer.get(), text.chat_template.get());
  for (const EvalSet& set : sets) {
    const LabelTrials trials = try_labels(*set.prompts, eval_reward_options(config));
    check_labels(trials, config.reward);
    if (trials.num_unread > 0 && world.rank() == 0)
      log_warn("{}; such rows are left out", describe_labels(trials));
  }
  const int64_t longest = longest_evaluated(sets, config);
  if (longest > policy.spec.max_positions) {
    int64_t longest_prompt = 0;
    for (const auto& set : sets) longest_prompt = std::max(longest_prompt, set.prompts->longest());
    throw Error(
        ErrorCode::kUsage,
        fmt::format(
            "the longest prompt and a full response are {} tokens, the model knows {} positions",
            longest, policy.spec.max_positions),
        longest_prompt < policy.spec.max_positions
            ? "lower eval.eval_max_response_len"
            : fmt::format("a prompt has {} tokens already: leave prompts of more than the model "
                          "knows out by eval.eval_max_prompt_len",
                          longest_prompt));
  }
  const model::Decoder decoder(policy.spec, device, longest, model::whole_model(policy.spec), {},
                               count_leaves(config.rollout, grid_sizes(config.parallel)));
  const auto weights = model::bind_weights(*policy.store, policy.spec);
  const RolloutOptions& o = config.rollout;
  rollout::Engine engine(
      decoder, weights, device, engine_options(o, longest),
      [&](int32_t id) -> const std::string& { return text.tokenizer->token_bytes(id); },
      text.tokenizer->vocab_size());
  Generator generator(engine, dist::groups_of_one(), text.tokenizer.get(), world.ranks());
  const auto grader = reward::make_grader(eval_reward_options(config));
  observe::MetricRow row;
  const std::string samples_dir =
      config.observe.run_dir.empty() ? "" : join_path(config.observe.run_dir, "samples");
  return evaluate(sets, config, generator, *grader, stop, 0, 0, samples_dir, world.rank() == 0,
                  row);
}

}  // namespace slimexx::rl
