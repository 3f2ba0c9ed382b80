#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/run_flags.h"
#include "cli/standard_output.h"
#include "cli/verbs.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/config/config.h"
#include "slimexx/rl/plan.h"

namespace slimexx::cli {
namespace {

#ifdef SLX_WITH_CUDA
constexpr bool kHasCuda = true;
#else
constexpr bool kHasCuda = false;
#endif

struct PlanFlags {
  std::string config, gpu = "h200";
  std::vector<std::string> settings;
  int num_gpus = 0;
  int64_t response_tokens = 0;
  bool json = false;
};

rl::RunConfig load_config(const PlanFlags& flags, int64_t num_ranks) {
  config::Config config = config::Config::load(flags.config, parse_settings(flags.settings));
  return rl::load_run_config(
      config, {.needs_training = true, .num_ranks = num_ranks, .default_run_dir = "runs/plan"});
}

// If the configured model folder does not exist, uses the config.json from the recipes' folder, so
// that users can plan before they download. Returns a note about the replacement; empty if nothing
// changed.
std::string use_known_config(const std::string& config_file, rl::RunConfig& config) {
  std::string& folder = config.model.hf_checkpoint;
  if (path_exists(folder)) return {};
  std::filesystem::path path(folder);
  if (!path.has_filename()) path = path.parent_path();  // "models/NAME/"
  const std::filesystem::path name = path.filename();
  const std::string known =
      (std::filesystem::path(config_file).parent_path() / "models" / name).string();
  if (name.empty() || !path_exists(known)) return {};
  std::string note = fmt::format("{} does not exist: planned from {}", folder, known);
  if (config.model.ref_load == folder) config.model.ref_load = known;
  for (rl::FrozenModelOptions& frozen : config.frozen_models)
    if (frozen.folder == folder) frozen.folder = known;
  folder = known;
  return note;
}

// Replaces --device in the hint by --gpu, the flag of plan.
Error name_plan_flags(const Error& error) {
  constexpr std::string_view kTheirs = "--device cpu", kOwn = "--gpu cpu";
  std::string hint = error.hint();
  if (const size_t at = hint.find(kTheirs); at != std::string::npos)
    hint.replace(at, kTheirs.size(), kOwn);
  return Error(error.code(), error.message(), hint, error.where());
}

rl::RunPlan plan_run(const rl::PlanRequest& request) {
  try {
    return rl::make_plan(request);
  } catch (const Error& error) {
    throw name_plan_flags(error);
  }
}

void run_plan(const PlanFlags& flags) {
  rl::PlanRequest request{.config = load_config(flags, flags.num_gpus),
                          .num_ranks = flags.num_gpus,
                          .gpu = rl::find_gpu_kind(flags.gpu),
                          .knows_kernels = kHasCuda};
  if (request.num_ranks == 0) {
    request.num_ranks = rl::choose_num_ranks(request.config.parallel);
    request.config = load_config(flags, request.num_ranks);
  }
  if (flags.response_tokens > 0) request.response_tokens = flags.response_tokens;
  const std::string note = use_known_config(flags.config, request.config);
  rl::RunPlan plan = plan_run(request);
  if (!note.empty()) plan.notes.insert(plan.notes.begin(), note);
  write_stdout(flags.json ? rl::plan_to_json(plan).dump(2) + "\n"
                          : rl::format_plan(plan, request.config));
  if (plan.fits()) return;
  const rl::PlannedStage& worst = plan.worst();
  throw Error(ErrorCode::kUsage,
              fmt::format("the run does not fit: {:.1f} GiB are missing on a rank",
                          static_cast<double>(worst.missing_bytes) / 0x1p30),
              flags.json ? worst.turn : "the plan lists the keys to change");
}

}  // namespace

VerbBody declare_plan(CLI::App& app) {
  auto flags = std::make_shared<PlanFlags>();
  app.add_option("--config", flags->config,
                 "The run's configuration (YAML); --set overrides its keys")
      ->type_name("FILE")
      ->required();
  add_set_flag(app, flags->settings);
  app.add_option("--gpus", flags->num_gpus,
                 "Number of ranks; default: from parallel.actor_num_gpus and rollout_num_gpus, or "
                 "the fewest that the parallel sizes allow")
      ->type_name("N")
      ->check(CLI::Range(1, 65536));
  app.add_option("--gpu", flags->gpu, "GPU model: h200, h100, h800, h20; or cpu")
      ->type_name("NAME")
      ->capture_default_str();
  app.add_option("--response-tokens", flags->response_tokens,
                 "Expected mean length of responses; default: half of rollout_max_response_len")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 30));
  app.add_flag("--json", flags->json, "Print the plan as JSON");
  app.footer(
      "Examples:\n"
      "  slimexx plan --config configs/glm-z1-9b-colocated.yaml --gpus 8\n"
      "  slimexx plan --config configs/glm4.5-355b.yaml --gpu h100 --json\n"
      "  slimexx plan --config run.yaml --set train.max_tokens_per_gpu=8192\n"
      "\n"
      "Runs in one process and needs no GPU; model.hf_checkpoint needs only config.json. Exit "
      "status 2\n"
      "if the run does not fit.");
  return [flags](Session& session) {
    if (session.is_root()) run_plan(*flags);
  };
}

}  // namespace slimexx::cli
