// One turn of the loop, and the stages that loop.cpp calls one after another. All ranks run the
// same stages in the same order; each is collective. Where ranks are apart, those that only
// generate have no part in train_stages.cpp but run_on_trainers.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rl/advantage/estimators.h"
#include "rl/generation/session.h"
#include "rl/training/roles.h"

namespace slimexx::rl {

// Log-probs of generated tokens, computed again by the trainer with the weights that made them.
struct LogProbComparison {
  double tokens = 0, mismatches = 0, sum_diff = 0, max_diff = 0;
};

// One turn of the loop.
struct Rollout {
  int64_t index = 0;
  bool is_generated = false;  // by this program's engine: exactness can be demanded
  // No token came masked, but for samples without a grade: an engine sampled them all, and those
  // that are masked from then on (rl.overlong_filtering) can be compared with it too.
  bool is_all_sampled = false;
  std::vector<Sample> samples;
  // See DrawnSamples.
  int64_t num_drawn_groups = 0, num_generated_tokens = 0, longest_response = 0;
  std::map<std::string, int64_t> drop_reasons;  // of groups, with their number
  size_t samples_per_step = 0;                  // the last step may have fewer
  std::optional<LogProbComparison> comparison;  // of the whole rollout, where one was made
  std::vector<train::StepResult> steps;
  double param_norm = 0;  // 2-norm of the weights behind the last step
  // Without what an evaluation after it took, but for the whole time of that.
  rollout::EngineStats engine_stats;
  std::map<std::string, double> span_seconds;
  observe::MetricRow row;
};

// Status; evaluation before the first rollout, or the one that is due.
void begin(const Session& session, TrainerSide& trainer_side, RolloutSide& rollout_side,
           Progress& progress);

// ---- rollout_stages.cpp ----
// Prompts -> samples with rewards, or a dump, or SFT examples; checked against the policy's model.
// Nothing, on all ranks, if a signal cut the generation off.
std::optional<Rollout> draw_samples(const Session& session, RolloutSide& rollout_side,
                                    const model::ModelSpec& policy, const Progress& progress);
void hand_over_weights(const Session& session, RolloutSide& rollout_side);  // to the engine
void evaluate(const Session& session, RolloutSide& rollout_side, Progress& progress,
              Rollout& rollout);  // every eval_interval
// Adds the metrics of an evaluation after rollout `rollout` to `row`; -1: before training. False if
// a signal cut it off.
bool run_evaluation(const Session& session, RolloutSide& rollout_side, int64_t optimizer_steps,
                    int64_t rollout, observe::MetricRow& row);

// ---- frozen_stages.cpp ----
// Log-probs and entropies under a frozen model.
std::vector<train::TokenScores> score_frozen(const Session& session, TrainerSide& trainer_side,
                                             FrozenModel& frozen, std::span<const Sample> samples);
// After the rollouts that rl.ref_update_interval names: the reference becomes the policy.
void update_reference(const Session& session, TrainerSide& trainer_side, Progress& progress);

// ---- train_stages.cpp ----
// `work` is collective over the ranks that train. The others wait: they get the trainers' progress,
// or throw what all of those throw agreed.
void run_on_trainers(const Session& session, Progress& progress, const std::function<void()>& work);
// Log-probs under the reference, where a KL term wants them.
void score_reference(const Session& session, TrainerSide& trainer_side, Rollout& rollout);
// Log-probs under the old policy: only what exactness leaves to do.
void score_old_policy(const Session& session, TrainerSide& trainer_side, Rollout& rollout);
void estimate_advantages(const RunConfig& config, Rollout& rollout);
void update_policy(const Session& session, TrainerSide& trainer_side, Progress& progress,
                   Rollout& rollout);  // optimizer steps
void check_exactness(const Session& session, const Rollout& rollout);

// ---- training_report.cpp: metrics, step line, sample table, dumps ----
void report(const Session& session, RolloutSide& rollout_side, const Progress& progress,
            Rollout& rollout);
void log_summary(const RunConfig& config, const RolloutSide& rollout_side);
// Whether the rows of the run have the evaluation after a rollout.
bool has_evaluation(const std::string& metrics_path, int64_t rollout);

// ---- checkpoint_stages.cpp ----
// Between two rollouts: what a checkpoint says of the run now.
void mark_whole_state(const Session& session, const TrainerSide& trainer_side,
                      const RolloutSide& rollout_side, Progress& progress);
void save(const Session& session, TrainerSide& trainer_side,
          const Progress& progress);  // every save_interval, and the last state
// Saves and throws Error(kInterrupted).
[[noreturn]] void stop(const Session& session, TrainerSide& trainer_side, const Progress& progress);
// If a signal asked for it on any rank, and something is left to do.
void stop_if_asked(const Session& session, TrainerSide& trainer_side, const Progress& progress);
void finish(const Session& session, TrainerSide& trainer_side, const RolloutSide& rollout_side,
            const Progress& progress);  // last checkpoint, export, status
// After an error. `is_agreed`: every rank has it, so that all can save together.
void fail(const Session& session, TrainerSide& trainer_side, const Progress& progress,
          const char* what, bool is_agreed) noexcept;

// ---- metrics of the samples, of the optimizer steps and of time, by slime's names ----
void set_rollout_metrics(const Rollout& rollout, const RunConfig& config, observe::MetricRow& row);
void set_train_metrics(const Rollout& rollout, const RunConfig& config, observe::MetricRow& row);
void set_time_metrics(const Rollout& rollout, const RankRoles& roles, observe::MetricRow& row);
// One step's own values, by the names "train_step/...".
observe::MetricRow make_train_step_row(const Rollout& rollout, size_t index,
                                       const RunConfig& config);
// Memory, disk and ranks of this process.
void set_machine_metrics(const std::string& run_dir, int num_ranks, observe::MetricRow& row);

}  // namespace slimexx::rl
