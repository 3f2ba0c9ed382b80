// One iteration of the loop, and the stages that loop.cpp calls one after another. All ranks run
// the same stages in the same order; each is collective. Disaggregated ranks that only generate
// take part in the stages of train_stages.cpp only through run_on_trainers.
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

// Compares log-probs of generated tokens with those that the trainer computes from the same
// weights.
struct LogProbComparison {
  double tokens = 0, mismatches = 0, sum_diff = 0, max_diff = 0;
};

// One iteration of the loop.
struct Rollout {
  int64_t index = 0;
  bool is_generated = false;  // by this program's engine, so log-probs must match exactly
  // Only samples without a grade arrived masked. The engine sampled all other tokens, so tokens
  // that are masked later (rl.overlong_filtering) can be compared with it too.
  bool is_all_sampled = false;
  std::vector<Sample> samples;
  // See DrawnSamples.
  int64_t num_drawn_groups = 0, num_generated_tokens = 0, longest_response = 0;
  std::map<std::string, int64_t> drop_reasons;  // number of groups by reason
  size_t samples_per_step = 0;                  // the last step may have fewer
  std::optional<LogProbComparison> comparison;  // over the whole rollout, if it was compared
  std::vector<train::StepResult> steps;
  double param_norm = 0;  // 2-norm of the weights after the last step
  // Neither includes the evaluation after the rollout, except for its total time in span_seconds.
  rollout::EngineStats engine_stats;
  std::map<std::string, double> span_seconds;
  observe::MetricRow row;
};

// Writes the status; runs the evaluation before the first rollout, or an earlier one that is still
// due.
void begin(const Session& session, TrainerSide& trainer_side, RolloutSide& rollout_side,
           Progress& progress);

// ---- rollout_stages.cpp ----
// Prompts -> samples with rewards, or a dump, or SFT examples; checked against the policy's model.
// Returns nullopt on all ranks if a signal cut off generation.
std::optional<Rollout> draw_samples(const Session& session, RolloutSide& rollout_side,
                                    const model::ModelSpec& policy, const Progress& progress);
void hand_over_weights(const Session& session, RolloutSide& rollout_side);  // to the engine
void evaluate(const Session& session, RolloutSide& rollout_side, Progress& progress,
              Rollout& rollout);  // every eval_interval
// Adds the metrics of an evaluation after rollout `rollout` (-1: before training) to `row`. Returns
// false if a signal cut it off.
bool run_evaluation(const Session& session, RolloutSide& rollout_side, int64_t optimizer_steps,
                    int64_t rollout, observe::MetricRow& row);

// ---- frozen_stages.cpp ----
// Log-probs and entropies under a frozen model.
std::vector<train::TokenScores> score_frozen(const Session& session, TrainerSide& trainer_side,
                                             FrozenModel& frozen, std::span<const Sample> samples);
// Copies the policy to the reference after every rl.ref_update_interval rollouts.
void update_reference(const Session& session, TrainerSide& trainer_side, Progress& progress);

// ---- train_stages.cpp ----
// `work` is collective over the ranks that train. The other ranks wait: they receive the trainers'
// progress, or throw the AgreedError that all trainers throw.
void run_on_trainers(const Session& session, Progress& progress, const std::function<void()>& work);
// Log-probs under the reference, if a KL term needs them.
void score_reference(const Session& session, TrainerSide& trainer_side, Rollout& rollout);
// Computes log-probs under the old policy, unless they must equal those of the rollout.
void score_old_policy(const Session& session, TrainerSide& trainer_side, Rollout& rollout);
void estimate_advantages(const RunConfig& config, Rollout& rollout);
void update_policy(const Session& session, TrainerSide& trainer_side, Progress& progress,
                   Rollout& rollout);  // optimizer steps
void check_exactness(const Session& session, const Rollout& rollout);

// ---- training_report.cpp: metrics, step line, sample table, dumps ----
void report(const Session& session, RolloutSide& rollout_side, const Progress& progress,
            Rollout& rollout);
void log_summary(const RunConfig& config, const RolloutSide& rollout_side);
// Whether metrics.jsonl has a row for the evaluation after a rollout.
bool has_evaluation(const std::string& metrics_path, int64_t rollout);

// ---- checkpoint_stages.cpp ----
// Called between two rollouts: records the state that a checkpoint would save.
void mark_whole_state(const Session& session, const TrainerSide& trainer_side,
                      const RolloutSide& rollout_side, Progress& progress);
void save(const Session& session, TrainerSide& trainer_side,
          const Progress& progress);  // every save_interval, and the last state
// Saves and throws Error(kInterrupted).
[[noreturn]] void stop(const Session& session, TrainerSide& trainer_side, const Progress& progress);
// Stops if a signal asked for it on any rank and work is left.
void stop_if_asked(const Session& session, TrainerSide& trainer_side, const Progress& progress);
void finish(const Session& session, TrainerSide& trainer_side, const RolloutSide& rollout_side,
            const Progress& progress);  // last checkpoint, export, status
// Called after an error. `is_agreed`: every rank has the error, so all can save together.
void fail(const Session& session, TrainerSide& trainer_side, const Progress& progress,
          const char* what, bool is_agreed) noexcept;

// ---- metrics of the samples, of the optimizer steps and of time, by slime's names ----
void set_rollout_metrics(const Rollout& rollout, const RunConfig& config, observe::MetricRow& row);
void set_train_metrics(const Rollout& rollout, const RunConfig& config, observe::MetricRow& row);
void set_time_metrics(const Rollout& rollout, const RankRoles& roles, observe::MetricRow& row);
// The values of one step, named "train_step/...".
observe::MetricRow make_train_step_row(const Rollout& rollout, size_t index,
                                       const RunConfig& config);
// Memory and disk use of this process, and the number of ranks.
void set_machine_metrics(const std::string& run_dir, int num_ranks, observe::MetricRow& row);

}  // namespace slimexx::rl
