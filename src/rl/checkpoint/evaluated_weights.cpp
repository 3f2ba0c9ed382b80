// Finds the weights that `slimexx eval` evaluates, and the folder for its samples.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "rl/checkpoint/resume_check.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/config/config.h"
#include "slimexx/io/checkpoint.h"
#include "slimexx/rl/standalone_evaluation.h"

namespace slimexx::rl {
namespace fs = std::filesystem;
namespace {

constexpr const char* kLoadKey = "model.load";

// The folder of checkpoints for the run in `run_dir`; empty: there is no run.
std::string find_root_of_run(const std::string& run_dir) {
  const std::string beside = join_path(run_dir, "checkpoints");
  const std::string settings = join_path(run_dir, "config.resolved.yaml");
  if (path_exists(beside) || !path_exists(settings)) return path_exists(beside) ? beside : "";
  config::Config config = config::Config::parse(read_text_file(settings), settings, {});
  std::string save;
  config.binder().begin_section("checkpoint", "");
  config.binder().field("save", save, {});
  config.binder().end_section();
  return save;
}

std::string require_step(const std::string& root, int64_t step) {
  const std::string folder = io::step_directory(root, step);
  if (!path_exists(folder) || io::find_latest(folder).empty())
    throw Error(ErrorCode::kUsage, fmt::format("there is no complete checkpoint of step {}", step),
                "set model.ckpt_step to a step that exists", root);
  return folder;
}

std::string find_evaluated_checkpoint(const ModelOptions& model) {
  const std::string& load = model.load;
  if (!path_exists(load))
    throw Error(ErrorCode::kUsage, fmt::format("the folder of {} does not exist", kLoadKey),
                "give a run folder, its folder of checkpoints, or one checkpoint; model.load=null "
                "evaluates model.hf_checkpoint",
                load);
  std::string root = load, found = io::find_latest(load);
  if (found.empty()) {
    root = find_root_of_run(load);
    if (!root.empty() && path_exists(root)) found = io::find_latest(root);
  }
  if (found.empty()) {
    const bool is_hf = path_exists(join_path(load, "config.json"));
    throw Error(ErrorCode::kUsage,
                fmt::format("the folder of {} holds no complete checkpoint", kLoadKey),
                is_hf ? "it is a Hugging Face folder: set model.hf_checkpoint to it"
                      : "give a run that has saved a checkpoint, its folder of checkpoints, or one "
                        "checkpoint; model.load=null evaluates model.hf_checkpoint",
                load);
  }
  return model.ckpt_step ? require_step(root, *model.ckpt_step) : found;
}

}  // namespace

EvaluatedWeights find_evaluated_weights(const RunConfig& config) {
  const ModelOptions& model = config.model;
  if (model.load.empty())
    return {.folder = model.hf_checkpoint, .are_random = config.debug.random_weights};
  EvaluatedWeights weights{.folder = {}, .checkpoint = find_evaluated_checkpoint(model)};
  if (!model.hf_checkpoint.empty()) check_same_model(weights.checkpoint, model.hf_checkpoint);
  // Use the model's files in the checkpoint, if there are any.
  const bool has_files = path_exists(join_path(weights.checkpoint, "config.json"));
  weights.folder = has_files ? weights.checkpoint : model.hf_checkpoint;
  if (weights.folder.empty())
    throw Error(ErrorCode::kUsage, "the checkpoint has no config.json",
                "set model.hf_checkpoint to the model's folder", weights.checkpoint);
  return weights;
}

std::string describe_weights(const EvaluatedWeights& weights) {
  if (weights.are_random)
    return fmt::format("evaluating random weights with the shapes of {}", weights.folder);
  if (weights.checkpoint.empty())
    return fmt::format("evaluating {}, a Hugging Face folder", weights.folder);
  const Json state = io::Checkpoint::open(weights.checkpoint).state();
  if (!state.is_object() || !state.contains("next_rollout"))
    return fmt::format("evaluating {}, a checkpoint with weights only", weights.checkpoint);
  const std::string where = join_path(weights.checkpoint, "manifest.json");
  return fmt::format("evaluating {}, after {} rollouts and {} optimizer steps", weights.checkpoint,
                     io::read_counter(state, "next_rollout", where),
                     io::read_counter(state, "optimizer_steps", where));
}

void check_samples_folder(const std::string& asked) {
  std::error_code error;
  if (!asked.empty() && path_exists(asked) && !fs::is_empty(asked, error))
    throw Error(ErrorCode::kUsage, "the folder for the samples is not empty",
                "give a new folder with --samples", asked);
}

std::string choose_samples_folder(const RunConfig& config, const std::string& asked) {
  if (!asked.empty()) {
    check_samples_folder(asked);
    make_directories(asked);
    return asked;
  }
  if (config.observe.run_dir.empty()) return "";
  const std::string own = join_path(config.observe.run_dir, "samples");
  const bool holds_run = path_exists(own) ||
                         path_exists(join_path(config.observe.run_dir, "metrics.jsonl")) ||
                         path_exists(join_path(config.observe.run_dir, "status.json"));
  if (!holds_run) return own;
  const std::string parent = join_path(config.observe.run_dir, "evaluations");
  make_directories(parent);
  for (int number = 1;; ++number) {  // the first number that is free
    const std::string folder = join_path(parent, fmt::format("{:03}", number));
    std::error_code error;
    if (fs::create_directory(folder, error)) return folder;
    if (error)
      throw Error(ErrorCode::kEnvironment, "cannot make a folder: " + error.message(),
                  "give another folder with --samples", folder);
  }
}

}  // namespace slimexx::rl
