#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <utility>

#include "cli/run_flags.h"
#include "cli/thread_ranks.h"
#include "cli/verbs.h"
#include "slimexx/base/error.h"
#include "slimexx/base/log.h"
#include "slimexx/base/shell.h"
#include "slimexx/base/url.h"
#include "slimexx/config/config.h"
#include "slimexx/dist/agreement.h"
#include "slimexx/dist/host.h"
#include "slimexx/dist/world.h"
#include "slimexx/rl/loaded_model.h"
#include "slimexx/rl/run_start.h"
#include "slimexx/rl/training.h"

namespace slimexx::cli {
namespace {

constexpr const char* kRunDirKey = "observe.run_dir";
constexpr const char* kAuto = "auto";

struct TrainFlags {
  std::string config, resume, device;
  std::vector<std::string> settings;
  bool wants_resume = false, dry_run = false;
  int thread_ranks = 0;
};

config::Config load_config(const TrainFlags& flags) {
  if (flags.config.empty() && flags.settings.empty()) {
    throw Error(ErrorCode::kUsage, "no configuration",
                "give --config FILE, or --set model.hf_checkpoint=DIR data.prompt_data=FILE ...",
                "slimexx train");
  }
  return config::Config::load(flags.config, parse_settings(flags.settings));
}

// The command line that starts this run again: without --resume and without secrets in addresses.
std::string command_to_start(const std::vector<std::string>& words) {
  std::string line;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--dry-run" || words[i].starts_with("--resume=")) continue;
    if (words[i] == "--resume") {
      if (i + 1 < words.size() && !words[i + 1].starts_with('-')) ++i;
      continue;
    }
    line += (line.empty() ? "" : " ") + quote_for_shell(hide_secrets_in_text(words[i]));
  }
  return line;
}

rl::StartWish start_wish(const TrainFlags& flags, bool names_run_dir) {
  rl::StartWish wish{
      .folder = flags.resume, .names_run_dir = names_run_dir, .dry_run = flags.dry_run};
  if (flags.wants_resume) {
    wish.resume = flags.resume.empty()    ? rl::ResumeWish::kNewest
                  : flags.resume == kAuto ? rl::ResumeWish::kAuto
                                          : rl::ResumeWish::kFolder;
  }
  return wish;
}

// Ranks on other hosts may read different files and environments.
void check_same_settings(const std::string& own, dist::Collective& communicator) {
  const std::string wanted = dist::broadcast_bytes(communicator, own, 0);
  dist::run_agreed(communicator, [&] {
    const auto changes = config::list_changes(wanted, own);
    if (changes.empty()) return;
    throw Error(ErrorCode::kUsage,
                fmt::format("its settings differ from those of rank 0: {} is {}, but {} on rank 0",
                            changes[0].key, changes[0].after, changes[0].before),
                "start all ranks with the same configuration and environment", changes[0].key);
  });
}

void run_train(const TrainFlags& flags, Session& session) {
  dist::Collective& communicator = session.world.ranks();
  const std::string stem = std::filesystem::path(flags.config).stem().string();
  config::Config config = load_config(flags);
  const bool names_run_dir = config.is_set(kRunDirKey);
  rl::TrainRequest request;
  request.config =
      rl::load_run_config(config, {.needs_training = true,
                                   .num_ranks = session.world.size(),
                                   .default_run_dir = "runs/" + (stem.empty() ? "train" : stem)});
  request.dry_run = flags.dry_run;
  check_same_settings(request.config.expanded_yaml, communicator);
  std::string decided;
  if (session.is_root()) {
    decided = rl::start_to_json(
        rl::decide_start(request.config, start_wish(flags, names_run_dir), request.locks));
  }
  request.start = rl::start_from_json(dist::broadcast_bytes(communicator, decided, 0));
  rl::set_default_run_dir(config, request.start.run_dir, request.config);
  request.device = select_rank_device(session.world, flags.device);
  request.start_command = command_to_start(session.words);
  request.resume_command = request.start_command + " --resume";
  // Name the folder: when the user resumes, a newer run may have the default name.
  if (!names_run_dir)
    request.resume_command +=
        " " + quote_for_shell(rl::checkpoint_root(request.config, request.start.run_dir));
  rl::run_training(std::move(request), session.world);
}

}  // namespace

VerbBody declare_train(CLI::App& app) {
  auto flags = std::make_shared<TrainFlags>();
  app.add_option("--config", flags->config,
                 "The run's configuration (YAML); --set overrides its keys")
      ->type_name("FILE");
  add_set_flag(app, flags->settings);
  const CLI::Option* resume = app.add_option("--resume", flags->resume,
                                             "Continue from a checkpoint, or from the newest "
                                             "checkpoint of a run folder. Without DIR: "
                                             "the newest of this run. auto: the newest of this "
                                             "run, or a new start if there is none")
                                  ->type_name("[DIR|auto]")
                                  ->expected(0, 1);
  app.add_flag("--dry-run", flags->dry_run,
               "Set up the run, print its settings, and stop before the first rollout");
  add_thread_ranks_flag(app, flags->thread_ranks);
  add_device_flag(app, flags->device);
  app.footer(
      "Examples:\n"
      "  slimexx train --config configs/quickstart.yaml\n"
      "  slimexx train --config run.yaml --set optimizer.lr=2e-6 rollout.num_rollout=100\n"
      "  slimexx train --config run.yaml --resume\n"
      "  srun slimexx train --config run.yaml --resume auto\n"
      "  mpirun -np 2 slimexx train --config run.yaml\n"
      "\n"
      "The run folder is observe.run_dir. If that is not set, it is runs/<name of the file> "
      "(runs/train\n"
      "without a file), with -2, -3, ... appended if an earlier run has that name. The folder of "
      "an\n"
      "earlier run is never overwritten.");
  // Copy the state of the options while parsing: the body runs after `app` is destroyed.
  app.parse_complete_callback([flags, resume] { flags->wants_resume = resume->count() > 0; });
  return [flags](Session& session) {
    run_on_ranks(flags->thread_ranks, session, [&](Session& own) { run_train(*flags, own); });
  };
}

}  // namespace slimexx::cli
