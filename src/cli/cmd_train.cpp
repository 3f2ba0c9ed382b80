#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "cli/run_flags.h"
#include "cli/verbs.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/io/checkpoint.h"
#include "slimexx/rl/loaded_model.h"
#include "slimexx/rl/training.h"

namespace slimexx::cli {
namespace {

struct TrainFlags {
  std::string config, resume, device;
  std::vector<std::string> settings;
  bool wants_resume = false, dry_run = false;
};

rl::RunConfig load_config(const TrainFlags& flags, int64_t num_ranks) {
  if (flags.config.empty() && flags.settings.empty()) {
    throw Error(ErrorCode::kUsage, "no configuration is given",
                "--config FILE, or --set model.hf_checkpoint=DIR data.prompt_data=FILE ...",
                "slimexx train");
  }
  config::Config config = config::Config::load(flags.config, parse_settings(flags.settings));
  const std::string stem = std::filesystem::path(flags.config).stem().string();
  return rl::load_run_config(config,
                             {.needs_training = true,
                              .num_ranks = num_ranks,
                              .default_run_dir = "runs/" + (stem.empty() ? "train" : stem)});
}

std::string quote_for_shell(const std::string& word) {
  if (!word.empty() && word.find_first_of(" \t\n'\"\\$`*?[]{}()<>|&;#~!") == std::string::npos) {
    return word;
  }
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// What to type to take this run up again, but for the --resume itself.
std::string command_to_resume(const std::vector<std::string>& words) {
  std::string line;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--dry-run" || words[i].starts_with("--resume=")) continue;
    if (words[i] == "--resume") {
      if (i + 1 < words.size() && !words[i + 1].starts_with('-')) ++i;
      continue;
    }
    line += (line.empty() ? "" : " ") + quote_for_shell(words[i]);
  }
  return line;
}

std::string find_resume(const TrainFlags& flags, const rl::RunConfig& config) {
  std::string root = flags.resume;
  if (root.empty()) root = config.checkpoint.save;
  if (root.empty()) root = join_path(config.observe.run_dir, "checkpoints");
  const std::string found = path_exists(root) ? io::find_latest(root) : "";
  if (found.empty()) {
    throw Error(ErrorCode::kUsage, "there is no complete checkpoint to resume from",
                flags.resume.empty() ? "name one with --resume DIR, or start anew without --resume"
                                     : "give a step_* folder, or the folder that holds them",
                root);
  }
  return found;
}

void run_train(const TrainFlags& flags, Session& session) {
  rl::TrainRequest request{.config = load_config(flags, session.world.size()),
                           .resume = {},
                           .command_line = command_to_resume(session.words),
                           .device = rl::select_device(flags.device, session.world.local_rank()),
                           .dry_run = flags.dry_run};
  if (flags.wants_resume) {
    // One rank looks, so that all take up the same checkpoint.
    const std::string found = session.is_root() ? find_resume(flags, request.config) : "";
    request.resume = session.world.communicator().broadcast(found, 0);
  }
  rl::run_training(std::move(request), session.world);
}

}  // namespace

VerbBody declare_train(CLI::App& app) {
  auto flags = std::make_shared<TrainFlags>();
  app.add_option("--config", flags->config, "The run's configuration (YAML); --set goes on top")
      ->type_name("FILE");
  add_set_flag(app, flags->settings);
  const CLI::Option* resume =
      app.add_option("--resume", flags->resume,
                     "Continue from a checkpoint; without DIR from this run's newest")
          ->type_name("[DIR]")
          ->expected(0, 1);
  app.add_flag("--dry-run", flags->dry_run,
               "Build everything, print it, stop before the first rollout");
  add_device_flag(app, flags->device);
  app.footer(
      "Examples:\n"
      "  slimexx train --config configs/quickstart.yaml\n"
      "  slimexx train --config run.yaml --set optimizer.lr=2e-6 rollout.num_rollout=100\n"
      "  slimexx train --config run.yaml --resume\n"
      "  mpirun -np 2 slimexx train --config run.yaml\n\n"
      "The run folder is observe.run_dir; if that is not set, runs/<name of the file>, or\n"
      "runs/train without a file.");
  // The body runs when `app` and its options are gone: what they know is taken over as they parse.
  app.parse_complete_callback([flags, resume] { flags->wants_resume = resume->count() > 0; });
  return [flags](Session& session) { run_train(*flags, session); };
}

}  // namespace slimexx::cli
