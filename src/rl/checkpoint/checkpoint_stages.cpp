// The stages in which a run begins, saves and ends.
#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "rl/checkpoint/stop_signal.h"
#include "rl/training/stages.h"
#include "slimexx/base/activity.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/log.h"
#include "slimexx/dist/agreement.h"
#include "slimexx/dist/host.h"
#include "slimexx/observe/console.h"
#include "slimexx/observe/span.h"
#include "slimexx/rl/export.h"

namespace slimexx::rl {
namespace {

// Saves the state that mark_whole_state recorded, and whether its evaluation is still due.
void save_checkpoint(const Session& session, TrainerSide& trainer_side, const Progress& progress) {
  observe::Span span("save_model");
  Json state = *progress.whole_state;
  state["evaluation_is_due"] = progress.evaluation_is_due;
  const auto rollouts = state.at("next_rollout").get<int64_t>();
  const model::ParameterStore& policy = *trainer_side.policy.store;
  FrozenModel* reference = find_frozen(trainer_side.frozen, kReference);
  if (reference != nullptr && !reference->is_saved) reference = nullptr;
  if (reference != nullptr) bring_in(session.request.device, *reference, policy);
  trainer_side.checkpoints->save(rollouts, state, policy, trainer_side.trainer->optimizer(),
                                 reference != nullptr ? reference->model.store.get() : nullptr);
  if (reference != nullptr) take_out(*reference, *trainer_side.trainer);
}

// Does nothing if the recorded state is lost or already saved.
void save_last_state(const Session& session, TrainerSide& trainer_side, const Progress& progress) {
  trainer_side.checkpoints->finish_pending();
  if (!progress.whole_state) return;
  const int64_t rollouts = progress.whole_state->at("next_rollout").get<int64_t>();
  if (rollouts == 0 || rollouts == trainer_side.checkpoints->last_saved()) return;
  if (!has_finite_weights(trainer_side.trainer->optimizer(), session.peers))
    return;  // no state to continue from
  save_checkpoint(session, trainer_side, progress);
  trainer_side.checkpoints->finish_pending();
  if (session.is_root())
    log_info("saved the state after {} rollouts; to continue: {}", rollouts,
             session.resume_command());
}

// After an error that all ranks share: saves the last state between two rollouts. Faults of this
// save are only logged.
void save_after_failure(const Session& session, TrainerSide& trainer_side,
                        const Progress& progress) {
  try {
    if (session.trains()) save_last_state(session, trainer_side, progress);
    if (session.roles.are_apart)
      session.communicator.barrier();  // a rank that exits early ends the others
  } catch (const std::exception& error) {
    log_error("the state could not be saved: {}", error.what());
  }
}

// If the last updates were all skipped, the run must end with an error.
void check_updates(const Progress& progress) {
  const bool none_applied =
      progress.optimizer_steps > 0 && progress.skipped_steps == progress.optimizer_steps;
  if (!none_applied && progress.skipped_in_a_row < 2) return;
  throw Error(
      ErrorCode::kRun,
      none_applied
          ? fmt::format("no optimizer step was applied: all {} had NaN or Inf gradients",
                        progress.optimizer_steps)
          : fmt::format(
                "training diverged: the last {} of {} optimizer steps had NaN or Inf gradients",
                progress.skipped_in_a_row, progress.optimizer_steps),
      "lower optimizer.lr, and inspect the samples of the last rollouts");
}

void write_trace(const Session& session) {
  if (!session.config.observe.trace) return;
  make_directories(session.path("trace"));
  observe::write_trace(session.path(fmt::format("trace/rank_{:03}.json", session.world.rank())));
}

// A checkpoint always says that its evaluation is due; metrics.jsonl says whether that evaluation
// was made later.
bool is_recorded(const Session& session, int64_t rollout) {
  double found[1] = {0};
  dist::run_agreed(session.communicator, [&] {
    if (session.is_root() && has_evaluation(session.path("metrics.jsonl"), rollout)) found[0] = 1;
  });
  dist::all_reduce_max(session.communicator, found);
  return found[0] != 0;
}

}  // namespace

// Random numbers are a function of names (numerics contract, N8), so the seed and the position in
// the data are their whole state.
void mark_whole_state(const Session& session, const TrainerSide& trainer_side,
                      const RolloutSide& rollout_side, Progress& progress) {
  if (!session.trains()) return;
  Json state;
  state["next_rollout"] = progress.next_rollout;
  state["optimizer_steps"] = progress.optimizer_steps;
  state["adam_steps"] = trainer_side.trainer->optimizer().num_steps();
  state["skipped_steps"] = progress.skipped_steps;
  state["skipped_in_a_row"] = progress.skipped_in_a_row;
  state["decay_steps"] = progress.decay_steps;
  state["seed"] = session.config.data.seed;
  state["data"] = rollout_side.source->state();
  state["partial_samples"] = Json::array();
  const model::ModelSpec& spec = trainer_side.policy.spec;
  if (spec.encoding != nullptr || spec.fp8_cache) state["numerics"] = fp8_identity(spec);
  progress.whole_state = std::move(state);
}

void begin(const Session& session, TrainerSide& trainer_side, RolloutSide& rollout_side,
           Progress& progress) {
  hand_over_weights(session, rollout_side);  // the loaded weights
  mark_whole_state(session, trainer_side, rollout_side, progress);
  session.log->write_status("running", progress.next_rollout);
  session.log->write_text(progress.next_rollout, "config",
                          observe::markdown_code(session.config.resolved_yaml));
  const int64_t rollout = progress.next_rollout - 1;
  if (progress.evaluation_is_due) progress.evaluation_is_due = !is_recorded(session, rollout);
  const bool is_first = progress.next_rollout == 0 && !session.config.eval.skip_eval_before_train;
  const bool evaluates =
      session.config.eval.eval_interval > 0 && (is_first || progress.evaluation_is_due);
  observe::MetricRow row;
  if (evaluates)
    progress.evaluation_is_due =
        !run_evaluation(session, rollout_side, progress.optimizer_steps, rollout, row);
  stop_if_asked(session, trainer_side, progress);
  if (evaluates) {
    dist::run_agreed(session.communicator, [&] {
      if (session.is_root()) session.log->write_row(rollout, row);
    });
  }
  observe::take_span_seconds();
}

void save(const Session& session, TrainerSide& trainer_side, const Progress& progress) {
  if (!session.trains()) return;
  trainer_side.checkpoints->poll();
  const auto& interval = session.config.checkpoint.save_interval;
  if (interval == 0) return;
  if (progress.is_done() || (interval && progress.next_rollout % *interval == 0))
    save_checkpoint(session, trainer_side, progress);
}

void stop(const Session& session, TrainerSide& trainer_side, const Progress& progress) {
  if (progress.next_rollout == 0) {
    session.log->write_status("interrupted", 0);
    throw Error(ErrorCode::kInterrupted,
                "stopped by a signal before the first rollout; nothing to save",
                session.start_command());
  }
  if (session.trains()) {
    if (trainer_side.checkpoints->last_saved() != progress.next_rollout)
      save_checkpoint(session, trainer_side, progress);
    trainer_side.checkpoints->finish_pending();
  }
  if (session.roles.are_apart)
    session.communicator.barrier();  // no rank exits before the state is saved
  session.log->write_status("interrupted", progress.next_rollout);
  write_trace(session);
  throw Error(
      ErrorCode::kInterrupted,
      fmt::format("stopped by a signal after {} rollouts; saved the state", progress.next_rollout),
      session.resume_command());
}

void stop_if_asked(const Session& session, TrainerSide& trainer_side, const Progress& progress) {
  double asked[1] = {stop_was_requested() ? 1.0 : 0.0};
  dist::all_reduce_max(session.communicator, asked);
  if (asked[0] == 0 || (progress.is_done() && !progress.evaluation_is_due)) return;
  stop(session, trainer_side, progress);
}

void finish(const Session& session, TrainerSide& trainer_side, const RolloutSide& rollout_side,
            const Progress& progress) {
  if (session.trains()) trainer_side.checkpoints->finish_pending();
  check_updates(progress);
  if (!session.config.checkpoint.save_hf.empty()) {
    const PhaseScope phase("export");
    export_hf(*trainer_side.policy.store, trainer_side.policy.layout, trainer_side.policy.spec,
              session.config.model.hf_checkpoint, session.config.checkpoint.save_hf,
              session.communicator);
    log_info("wrote the model to {}", session.config.checkpoint.save_hf);
  }
  write_trace(session);
  const std::string warning =
      progress.skipped_steps == 0
          ? ""
          : fmt::format("{} of {} updates were skipped for NaN or Inf gradients",
                        progress.skipped_steps, progress.optimizer_steps);
  session.log->write_status("done", progress.next_rollout, "", warning);
  if (!warning.empty() && session.is_root()) log_warn("{}", warning);
  if (session.is_root()) log_summary(session.config, rollout_side);
  session.communicator.barrier();
}

// Memory may be short here too, so each part that fails is skipped.
void fail(const Session& session, TrainerSide& trainer_side, const Progress& progress,
          const char* what, bool is_agreed) noexcept {
  try {
    if (is_agreed || session.world.size() == 1) save_after_failure(session, trainer_side, progress);
    if (!is_agreed && session.watch) session.watch->look_now();
  } catch (...) {
  }
  try {
    observe::FailurePlace place;
    if (!is_agreed)
      place = {
          .rank = session.world.rank(), .host = host_name(), .phase = failed_phase(), .call = ""};
    session.log->write_failure(progress.next_rollout, what, place);
  } catch (...) {
    constexpr std::string_view kText = "status.json could not be written\n";
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kText.data(), kText.size());
  }
}

}  // namespace slimexx::rl
