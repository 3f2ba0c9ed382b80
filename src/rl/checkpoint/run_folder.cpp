// Prints the banner and opens the run folder only when the run is fully built, so that a failed
// start or a dry run leaves nothing on disk.
#include <fmt/format.h>

#include <system_error>

#include "rl/checkpoint/resume_check.h"
#include "rl/training/run_summary.h"
#include "rl/training/training_run.h"
#include "slimexx/base/file.h"
#include "slimexx/base/log.h"
#include "slimexx/base/strings.h"
#include "slimexx/base/thread_pool.h"
#include "slimexx/dist/host.h"
#include "slimexx/io/checkpoint.h"
#include "slimexx/model/describe.h"
#include "slimexx/model/parameters.h"

namespace slimexx::rl {
namespace {

// Text that says whether decode steps run as CUDA graphs; empty without a GPU or an engine.
std::string launched(const TrainingRun& run) {
  const tensor::Device device = run.session.request.device;
  if (device.is_cpu() || !run.rollout_side.engine) return "";
  return run.rollout_side.engine->records_steps() ? "; decode steps run as CUDA graphs"
                                                  : "; decode steps do not use CUDA graphs";
}

// Ranks that are threads share one list: read it after all ranks are built, before any continues.
std::string list_memory(const TrainingRun& run) {
  const Session& session = run.session;
  if (!session.world.are_threads()) return session.is_root() ? memory_table(run) : "";
  session.communicator.barrier();
  const std::string table = session.is_root() ? memory_table(run) : "";
  session.communicator.barrier();
  return table;
}

// Describes a rank that generates; the same on all ranks.
struct GeneratorText {
  std::string launched;
  std::string memory;  // empty if colocated, or if the root's list has it
};

GeneratorText describe_generator(const TrainingRun& run) {
  const Session& session = run.session;
  if (!session.roles.are_apart || session.world.are_threads()) return {launched(run), ""};
  const int first = session.roles.first_generator();
  const bool is_first = session.world.rank() == first;
  const auto broadcast = [&](const std::string& text) {
    return dist::broadcast_bytes(session.communicator, text, first);
  };
  return {broadcast(is_first ? launched(run) : ""), broadcast(is_first ? memory_table(run) : "")};
}

std::string describe_frozen(const model::ModelSpec& spec) {
  int64_t frozen = 0, trained = 0;
  for (const model::ParameterInfo& info : model::list_parameters(spec))
    (info.trainable ? trained : frozen) += info.num_elements();
  return fmt::format("  frozen    {} parameters; {} are trained\n",
                     format_count(static_cast<double>(frozen)),
                     format_count(static_cast<double>(trained)));
}

std::string banner(const TrainingRun& run, const std::string& memory_of_ranks,
                   const GeneratorText& generator) {
  const auto& [progress, session, memory, trainer_side, rollout_side, grid, world, engine_grid] =
      run;
  const auto& spec = trainer_side.policy.spec;
  std::string text = fmt::format(
      "slimexx {}{}\n",
      session.config.is_sft() ? "supervised fine-tuning" : session.config.rl.advantage_estimator,
      session.request.dry_run ? " (dry run)" : "");
  text += fmt::format("  model     {} ({}), {} parameters, {} layers, hidden {}, vocabulary {}\n",
                      session.config.model.hf_checkpoint, spec.architecture,
                      format_count(static_cast<double>(model::count_parameters(spec).total)),
                      spec.num_layers(), spec.hidden_size, spec.vocab_size);
  if (const int64_t trained = spec.num_trained_mtp(); trained > 0)
    text += fmt::format(
        "  mtp       the first {} of {} multi-token prediction layers are trained too\n", trained,
        spec.mtp.size());
  if (!spec.frozen.empty()) text += describe_frozen(spec);
  text += fmt::format("  ranks     {} {} {} threads on {}\n", session.world.size(),
                      session.world.are_threads() ? "of one process, which share" : "x",
                      num_threads(), tensor::to_string(session.request.device));
  if (session.roles.are_apart)
    text += fmt::format("  roles     the first {} ranks train, the next {} generate\n",
                        session.roles.num_trainers, session.roles.num_generators);
  if (const EngineShape& engines = session.engine_shape; engines.num_ranks > 1)
    text += fmt::format("  engines   {} of {} ranks: {}{}\n", engines.num_engines,
                        engines.num_ranks, describe_engine(engines), generator.launched);
  if (rollout_side.prompts) {
    text += fmt::format(
        "  prompts   {} from {}{}\n", rollout_side.prompts->size(), session.config.data.prompt_data,
        rollout_side.prompts->num_dropped() > 0
            ? fmt::format(" ({} too long, dropped)", rollout_side.prompts->num_dropped())
            : "");
  }
  text += fmt::format("  batch     {}\n", describe_batch(session.config));
  text += fmt::format("  rollouts  {} of {} done\n", progress.next_rollout, progress.num_rollouts);
  const bool counts_all = session.world.are_threads();
  text += fmt::format("  memory    of {} on {}\n{}",
                      counts_all                ? "all ranks of this process"
                      : session.roles.are_apart ? "one training rank"
                                                : "one rank",
                      tensor::to_string(session.request.device), memory_of_ranks);
  if (!generator.memory.empty())
    text += fmt::format(
        "  memory    of one generating rank\n"
        "{}",
        generator.memory);
  text += fmt::format("  run       {}\n", session.config.observe.run_dir);
  if (rollout_side.grader) text += fmt::format("  reward    {}\n", session.config.reward.rm_type);
  text += fmt::format("  saves     {}\n", describe_saves(session.config, session.checkpoint_root));
  text += fmt::format(
      "  resume    {}{}",
      session.config.checkpoint.save_interval == 0 ? "after a signal or an error: " : "",
      session.resume_command());
  return text;
}

}  // namespace

void open_run_folder(TrainingRun& run) {
  Session& session = run.session;
  const Progress& progress = run.progress;
  if (!session.request.dry_run) {
    if (session.is_root() && session.request.start.sets_rows_aside)
      set_rows_aside(session.config.observe.run_dir);
    make_directories(session.path("logs"));
    open_log_file(session.path(fmt::format("logs/rank_{:03}.log", session.world.rank())));
  }
  session.log = std::make_unique<observe::RunLog>(
      observe::RunLog::Options{.run_dir = session.config.observe.run_dir,
                               .tensorboard = session.config.observe.tensorboard,
                               .enabled = session.is_root() && !session.request.dry_run,
                               .resume_step = progress.next_rollout,
                               .resume_train_step = progress.optimizer_steps,
                               .total_steps = progress.num_rollouts});
  if (session.watch) session.watch->show_records(session.communicator, session.path("ranks"));
  const std::string memory = list_memory(run);
  const GeneratorText generator = describe_generator(run);
  if (!session.is_root()) return;
  log_info("{}", banner(run, memory, generator));
  for (const std::string& line : describe_taken_keys(session.config)) log_info("{}", line);
  if (const std::string text = describe_truncated_sampling(session.config); !text.empty())
    log_warn("{}", text);
  for (const LabelTrials& trials : run.rollout_side.label_trials)
    if (trials.num_unread > 0) log_warn("{}; such rows are left out", describe_labels(trials));
  if (progress.next_rollout > 0 && progress.is_done())
    log_info("{} of {} rollouts are done; raise {} to continue", progress.next_rollout,
             progress.num_rollouts, name_length_key(session.config));
  if (session.request.dry_run) log_info("{}", describe_checks(run));
  if (!session.request.dry_run && session.request.start.is_own)
    io::tidy_root(session.checkpoint_root, session.config.checkpoint.keep_last,
                  session.request.start.checkpoint);
  if (!session.request.dry_run)
    write_settings(session.config.observe.run_dir, session.config.resolved_yaml);
}

}  // namespace slimexx::rl
