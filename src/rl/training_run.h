// Everything a training run owns, and the stages that loop.cpp calls one after another. All ranks
// run the same stages in the same order.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "estimators.h"
#include "memory_plan.h"
#include "run_checkpoint.h"
#include "sample_source.h"
#include "slimexx/dist/rank_watch.h"
#include "slimexx/observe/metrics.h"
#include "slimexx/rl/evaluation.h"
#include "slimexx/rl/loaded_model.h"
#include "slimexx/rl/training.h"
#include "slimexx/train/trainer.h"

namespace slimexx::rl {

// Log-probs of generated tokens, computed again by the trainer with the weights that made them.
struct LogProbComparison {
  double tokens = 0, mismatches = 0, sum_diff = 0, max_diff = 0;
};

// One turn of the loop.
struct Rollout {
  int64_t index = 0;
  std::vector<Sample> samples;
  size_t samples_per_step = 0;                  // the last step may have fewer
  std::optional<LogProbComparison> comparison;  // of the whole rollout, where one was made
  std::vector<train::StepResult> steps;
  double param_norm = 0;  // 2-norm of the weights behind the last step
  observe::MetricRow row;
};

class TrainingRun {
 public:
  TrainingRun(TrainRequest request, dist::World& world);
  ~TrainingRun();

  bool is_done() const { return next_rollout_ >= num_rollouts_; }
  bool is_dry_run() const { return request_.dry_run; }

  void begin();            // banner, status; evaluation before the first rollout
  Rollout draw_samples();  // prompts -> samples with rewards, or a dump, or SFT examples
  void score_reference(
      Rollout& rollout);  // log-probs under the reference, where a KL term wants them
  void score_old_policy(Rollout& rollout);  // only what exactness leaves to do
  void estimate_advantages(Rollout& rollout);
  void update_policy(Rollout& rollout);  // optimizer steps
  void check_exactness(const Rollout& rollout) const;
  void hand_over_weights(Rollout& rollout);  // to the engine
  void evaluate(Rollout& rollout);           // every eval_interval
  void report(Rollout& rollout);             // metrics, step line, sample table, dumps
  void save(const Rollout& rollout);         // every save_interval
  void stop_if_asked();                      // saves and throws Error(kInterrupted)
  void finish();                             // last checkpoint, export, status
  // After an error. `is_agreed`: every rank has it, so that all can save together.
  void fail(const std::string& what, bool is_agreed) noexcept;

 private:
  void build_model();
  void build_reference();
  void build_data();
  void build_engine();
  void build_trainer();
  tensor::Tensor take_pool();  // the engine's part of it
  int64_t samples_per_microbatch() const;
  tensor::Tensor gradient_bytes() const;
  std::string memory_table() const;  // lines of the banner
  void open_run_folder();
  void resume();
  void restore_training(const io::Checkpoint& checkpoint);
  bool wants_engine() const;
  int64_t longest_sequence() const;   // of tokens that the policy may see
  int64_t longest_generated() const;  // prompt and response, evaluation included
  int64_t longest_trained() const;
  void run_evaluation(int64_t rollout, observe::MetricRow& row);
  void check_updates() const;
  train::StepLoss step_loss(const Rollout& rollout) const;
  train::StepResult run_step(const Rollout& rollout, size_t begin, size_t end, size_t step);
  void dump_gradients();
  void dump_weights() const;
  void report_mismatch(int64_t rollout, const LogProbComparison& found) const;
  void mark_whole_state();
  void save_checkpoint(int64_t completed_rollouts);
  void save_checkpoint(int64_t completed_rollouts, const Json& state);
  void save_after_failure() noexcept;
  void write_trace() const;
  void log_rollout(const Rollout& rollout);
  void set_source_metrics(observe::MetricRow& row) const;
  void set_engine_metrics(observe::MetricRow& row) const;
  void write_train_steps(const Rollout& rollout);
  void write_samples(const Rollout& rollout);
  void log_samples(const Rollout& rollout) const;
  void log_first_step_checks(const Rollout& rollout) const;
  void log_summary() const;
  Json checkpoint_state(int64_t completed_rollouts) const;
  std::string run_path(const std::string& name) const;
  bool is_root() const { return world_.rank() == 0; }
  std::string launcher() const;
  std::string start_command() const;
  std::string resume_command() const;
  std::string banner() const;
  std::string describe_checks() const;  // of a dry run: what is known to be in order

  TrainRequest request_;
  const RunConfig& config_;
  dist::World& world_;
  dist::Communicator& communicator_;
  std::string root_of_checkpoints_;
  LoadedModel policy_, reference_;
  bool reference_is_transient_ = false;  // its weights are read when they are needed
  TextSide text_;
  std::shared_ptr<const data::PromptSet> prompts_;
  std::vector<EvalSet> eval_sets_;
  std::unique_ptr<SampleSource> source_;
  std::unique_ptr<model::Decoder> transformer_, reference_transformer_;
  model::ModelParameters policy_weights_;
  std::unique_ptr<reward::Grader> grader_, eval_grader_;
  // On a GPU: the memory in which generation and training take turns.
  std::optional<MemoryPlan> memory_plan_;
  tensor::Buffer pool_;
  std::unique_ptr<rollout::Engine> engine_;
  std::unique_ptr<Generator> generator_;
  std::unique_ptr<train::Trainer> trainer_;
  std::unique_ptr<CheckpointWriter> checkpoints_;
  std::unique_ptr<observe::RunLog> log_;
  std::unique_ptr<dist::RankWatch> watch_;  // after the log, which it writes to
  std::vector<int32_t> stop_token_ids_;
  std::vector<double> reward_history_;  // mean reward by rollout, of this process
  std::vector<EvalResult> first_eval_, last_eval_;
  int64_t next_rollout_ = 0, num_rollouts_ = 0, optimizer_steps_ = 0, skipped_steps_ = 0;
  int64_t skipped_in_a_row_ = 0;  // the last updates, all of them skipped
  double learning_rate_ = 0;      // of the last update
  // What checkpoint_state said when the last rollout ended or began; empty once an update was made
  // on top of it.
  std::optional<Json> whole_state_;
  int64_t saved_rollouts_ = -1;  // of the newest checkpoint that this process began to write
};

// Metrics of the samples, of the optimizer steps and of time, by slime's names.
void set_rollout_metrics(const Rollout& rollout, const RunConfig& config, observe::MetricRow& row);
void set_train_metrics(const Rollout& rollout, const RunConfig& config, int num_ranks,
                       observe::MetricRow& row);
void set_time_metrics(const Rollout& rollout, int num_ranks, observe::MetricRow& row);
// One step's own values, by the names "train_step/...".
observe::MetricRow make_train_step_row(const Rollout& rollout, size_t index,
                                       const RunConfig& config, int num_ranks);
// Memory, disk and ranks of this process.
void set_machine_metrics(const std::string& run_dir, int num_ranks, observe::MetricRow& row);

}  // namespace slimexx::rl
