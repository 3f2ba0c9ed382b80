// The loop: prompts, samples, advantages, update, hand-over, evaluation, checkpoint. Nothing else.
#include <exception>

#include "slimexx/base/error.h"
#include "slimexx/dist/agreement.h"
#include "slimexx/observe/span.h"
#include "stop_signal.h"
#include "training_run.h"

namespace slimexx::rl {
namespace {

void run_loop(TrainingRun& run) {
  run.begin();
  while (!run.is_done()) {
    observe::Span step("step");
    Rollout rollout = run.draw_samples();
    run.score_reference(rollout);
    run.score_old_policy(rollout);
    run.estimate_advantages(rollout);
    run.update_policy(rollout);
    run.check_exactness(rollout);
    run.hand_over_weights(rollout);
    run.evaluate(rollout);
    run.report(rollout);
    run.save(rollout);
    run.stop_if_asked();
  }
  run.finish();
}

}  // namespace

void run_training(TrainRequest request, dist::World& world) {
  install_stop_signals();
  TrainingRun run(std::move(request), world);
  try {
    if (run.is_dry_run()) return;
    run_loop(run);
  } catch (const dist::AgreedError& error) {
    run.fail(error.message(), true);
    throw;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInterrupted) run.fail(error.message(), false);
    throw;
  } catch (const std::exception& error) {  // out of memory, mostly
    run.fail(error.what(), false);
    throw;
  }
}

}  // namespace slimexx::rl
