// The loop: prompts, samples, advantages, update, hand-over, evaluation, checkpoint. Nothing else.
#include <exception>
#include <memory>
#include <new>
#include <optional>

#include "rl/checkpoint/stop_signal.h"
#include "rl/training/stages.h"
#include "rl/training/training_run.h"
#include "slimexx/base/error.h"
#include "slimexx/base/log.h"
#include "slimexx/dist/agreement.h"
#include "slimexx/dist/world.h"
#include "slimexx/observe/span.h"

namespace slimexx::rl {
namespace {

// Too large for malloc to cache: a free returns the memory to the system at once.
constexpr size_t kReserveBytes = size_t{4} << 20;

void run_loop(TrainingRun& run) {
  Progress& progress = run.progress;
  Session& session = run.session;
  TrainerSide& trainer_side = run.trainer_side;
  RolloutSide& rollout_side = run.rollout_side;
  begin(session, trainer_side, rollout_side, progress);
  while (!progress.is_done()) {
    observe::Span step("step");
    std::optional<Rollout> drawn =
        draw_samples(session, rollout_side, trainer_side.policy.spec, progress);
    if (!drawn) return stop(session, trainer_side, progress);
    Rollout& rollout = *drawn;
    run_on_trainers(session, progress, [&] {
      score_reference(session, trainer_side, rollout);
      score_old_policy(session, trainer_side, rollout);
      estimate_advantages(session.config, rollout);
      update_policy(session, trainer_side, progress, rollout);
      update_reference(session, trainer_side, progress);
      mark_whole_state(session, trainer_side, rollout_side, progress);
      check_exactness(session, rollout);
    });
    hand_over_weights(session, rollout_side);
    try {
      evaluate(session, rollout_side, progress, rollout);
    } catch (const dist::AgreedError&) {  // the state is consistent: save it, and write the metrics
      report(session, rollout_side, progress, rollout);
      throw;
    }
    report(session, rollout_side, progress, rollout);
    save(session, trainer_side, progress);
    stop_if_asked(session, trainer_side, progress);
  }
  finish(session, trainer_side, rollout_side, progress);
}

}  // namespace

void run_training(TrainRequest request, dist::World& world) {
  install_stop_signals();
  TrainingRun run(std::move(request), world);
  if (run.session.request.dry_run) return;
  // Freed when the run has failed, so that the error can be reported even if memory is short.
  auto reserve = std::make_unique<char[]>(kReserveBytes);
  const auto note_failure = [&](const char* what, bool is_agreed) {
    reserve.reset();
    fail(run.session, run.trainer_side, run.progress, what, is_agreed);
  };
  try {
    run_loop(run);
  } catch (const dist::AgreedError& error) {
    note_failure(error.located_message().c_str(), true);
    throw;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInterrupted)
      note_failure(error.located_message().c_str(), false);
    throw;
  } catch (const std::bad_alloc&) {
    note_failure("the host is out of memory", false);
    throw;
  } catch (const std::exception& error) {
    note_failure(error.what(), false);
    throw;
  }
}

}  // namespace slimexx::rl
