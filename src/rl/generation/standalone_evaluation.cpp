#include "slimexx/rl/standalone_evaluation.h"

#include <fmt/format.h>

#include <algorithm>

#include "rl/config/speculation.h"
#include "rl/generation/label_trial.h"
#include "rl/generation/sample_source.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/log.h"
#include "slimexx/dist/agreement.h"
#include "slimexx/dist/world.h"
#include "slimexx/rl/engine_shape.h"
#include "slimexx/rl/loaded_model.h"

namespace slimexx::rl {
namespace {

// Every rank's engine runs the whole model. Sums are split as in a training run's grid.
LoadedModel load_evaluated(const EvaluatedWeights& weights, const RunConfig& config,
                           tensor::Device device, dist::World& world) {
  const ModelRanks ranks = make_model_ranks(world, {});
  const Fp8Choice fp8 = fp8_choice(config);
  const ModelUse use{.fp8 = &fp8};
  if (weights.are_random)
    return make_random_model(weights.folder, device, false, static_cast<uint64_t>(config.data.seed),
                             &ranks, use);
  if (weights.checkpoint.empty())
    return load_model(weights.folder, device, false, world.rank() == 0, &ranks, use);
  const io::Checkpoint checkpoint = io::Checkpoint::open(weights.checkpoint);
  dist::run_agreed(world.ranks(), [&] {
    if (world.rank() == 0) checkpoint.verify_hashes();
  });
  return load_checkpoint_model(weights.folder, checkpoint, device, &ranks, use);
}

}  // namespace

std::vector<EvalResult> run_evaluation(const RunConfig& config, const EvaluatedWeights& weights,
                                       const std::string& samples_folder, tensor::Device device,
                                       dist::World& world, const std::function<void()>& on_ready) {
  const LoadedModel policy = load_evaluated(weights, config, device, world);
  encode_weights(*policy.store, device);
  if (policy.spec.encoding != nullptr && world.rank() == 0)
    log_info("FP8: {}", describe_fp8(policy.spec));
  check_speculation(config.rollout, policy.spec, weights.folder);
  const auto stop = join_stop_tokens(policy.eos_token_ids, policy.spec.vocab_size,
                                     config.eval.eval_stop_token_ids, eval_stop_tokens_key(config));
  const TextSide text = load_text_side(weights.folder);
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
  check_positions(sets, config, policy.spec.max_positions);
  const int64_t longest = longest_evaluated(sets, config);
  const model::Decoder decoder(policy.spec, device, longest, model::whole_model(policy.spec), {},
                               count_leaves(config.rollout, grid_sizes(config.parallel)));
  const auto bound = model::bind_weights(*policy.store, policy.spec);
  rollout::Engine engine(
      decoder, bound, device, engine_options(config.rollout, longest),
      [&](int32_t id) -> const std::string& { return text.tokenizer->token_bytes(id); },
      text.tokenizer->vocab_size());
  Generator generator(engine, dist::groups_of_one(), text.tokenizer.get(), world.ranks());
  const auto grader = reward::make_grader(eval_reward_options(config));
  dist::run_agreed(world.ranks(), [&] {
    if (world.rank() == 0) on_ready();
  });
  observe::MetricRow row;
  const auto samples_file = [&](const std::string& set) {
    if (samples_folder.empty()) return std::string();
    // In the samples folder of a run folder, use the file names that runs use.
    const bool is_of_run = samples_folder == join_path(config.observe.run_dir, "samples");
    return join_path(samples_folder, "eval_" + set + (is_of_run ? "_000000.jsonl" : ".jsonl"));
  };
  return evaluate(sets, config, generator, *grader, stop, 0, 0, samples_file, world.rank() == 0,
                  row);
}

}  // namespace slimexx::rl
