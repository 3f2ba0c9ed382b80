// `slimexx doctor`: describes the hosts and the launch, and lists faults to fix.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "build_info.h"
#include "cli/run_flags.h"
#include "cli/standard_output.h"
#include "cli/verbs.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/dist/agreement.h"
#include "slimexx/dist/host.h"
#include "slimexx/doctor/report.h"
#include "slimexx/io/hf_folder.h"
#include "slimexx/model/describe.h"
#include "slimexx/model/families.h"
#include "slimexx/rl/run_config.h"

namespace slimexx::cli {
namespace {

struct DoctorFlags {
  std::string config;
  std::vector<std::string> settings;
};

// Checkpoint bytes per parameter: f32 master weight and moments, and on GPUs the bf16 weight.
constexpr double kBytesOnGpus = 2 + 4 + 8, kBytesOnCpus = 4 + 8;

struct Plan {
  // Folders that the run would write to; checkpoints go to the first.
  std::vector<std::string> folders = {"."};
  std::vector<doctor::Finding> findings = {};
  int64_t num_parameters = 0, num_checkpoints = 0;
};

// The nearest existing folder of `path`. Adds a fault for a component that is not a folder.
std::string existing_parent(std::filesystem::path path, const char* key,
                            std::vector<doctor::Finding>& findings) {
  path = std::filesystem::absolute(path);
  std::error_code ignored;
  while (!std::filesystem::is_directory(path, ignored) && path.has_relative_path()) {
    if (std::filesystem::exists(path, ignored))
      findings.push_back({doctor::Severity::kFault, "rank 0",
                          fmt::format("{}: {} is not a folder", key, path.string()),
                          "give a folder"});
    path = path.parent_path();
  }
  return path.string();
}

Plan plan_of(const DoctorFlags& flags, int64_t num_ranks) {
  if (flags.config.empty() && flags.settings.empty()) return {};
  config::Config config = config::Config::load(flags.config, parse_settings(flags.settings));
  const rl::RunConfig run = rl::load_run_config(
      config, {.needs_training = true, .num_ranks = num_ranks, .default_run_dir = "runs/train"});
  Plan plan;
  plan.folders = {existing_parent(run.observe.run_dir, "observe.run_dir", plan.findings)};
  if (!run.checkpoint.save.empty()) {
    const std::string saved =
        existing_parent(run.checkpoint.save, "checkpoint.save", plan.findings);
    if (saved != plan.folders[0]) plan.folders.insert(plan.folders.begin(), saved);
  }
  plan.num_checkpoints = run.checkpoint.keep_last + 1;  // saves before it removes an old one
  const std::string path = join_path(run.model.hf_checkpoint, "config.json");
  if (path_exists(path)) {
    const io::HfFolder model = io::HfFolder::open_without_weights(run.model.hf_checkpoint);
    plan.num_parameters =
        model::count_parameters(model::read_model_spec(model.config(), path)).total;
  } else {
    plan.findings.push_back({doctor::Severity::kFault, "rank 0",
                             fmt::format("model.hf_checkpoint: {} does not exist", path),
                             "set it to a Hugging Face folder"});
  }
  return plan;
}

void run_doctor(const DoctorFlags& flags, Session& session) {
  const Plan plan = plan_of(flags, session.world.size());
  const auto ranks = doctor::gather_facts(
      session.world, fmt::format("{} ({})", SLX_VERSION, SLX_REVISION), plan.folders);
  const double bytes = static_cast<double>(plan.num_parameters) *
                       static_cast<double>(plan.num_checkpoints) *
                       (ranks[0].gpu ? kBytesOnGpus : kBytesOnCpus);
  auto findings = doctor::find_problems(ranks, {.checkpoint_bytes = bytes});
  findings.insert(findings.begin(), plan.findings.begin(), plan.findings.end());
  if (session.is_root()) write_stdout(doctor::format_report(ranks, findings, plan.folders[0]));
  const auto own =
      std::ranges::count(findings, doctor::Severity::kFault, &doctor::Finding::severity);
  // Use the faults of the root, which are printed: other hosts may see other files.
  double faults[1] = {session.is_root() ? static_cast<double>(own) : 0};
  dist::all_reduce_max(session.world.ranks(), faults);
  if (faults[0] > 0)
    throw dist::AgreedError(Error(
        ErrorCode::kCheck, fmt::format("{} fault{} found", faults[0], faults[0] == 1 ? "" : "s"),
        "see the lines above", "slimexx doctor"));
}

}  // namespace

VerbBody declare_doctor(CLI::App& app) {
  const auto flags = std::make_shared<DoctorFlags>();
  app.add_option("--config", flags->config,
                 "A run's configuration: also check its folders and the disk space for checkpoints")
      ->type_name("FILE");
  add_set_flag(app, flags->settings);
  app.footer(
      "Examples:\n"
      "  slimexx doctor\n"
      "  mpirun -np 8 slimexx doctor --config run.yaml\n"
      "\n"
      "Use the launcher and ranks of the run: doctor checks cores, memory, GPUs, links "
      "and\n"
      "disk of every rank within seconds. Exit status 5 if a run would fail.");
  return [flags](Session& session) { run_doctor(*flags, session); };
}

}  // namespace slimexx::cli
