// The two roles of a run, and where it stands. Colocated ranks have both roles: where a rank trains
// what its engine holds, the engine reads the trainer's weights in place, and the hand-over's plan
// has aliases only; elsewhere the engine has weights of its own. Apart a rank has one role, and
// holds nothing of the other: its policy, or its engine's model, is without parameters.
#pragma once
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "rl/assembly/engine_model.h"
#include "rl/assembly/frozen_model.h"
#include "rl/checkpoint/run_checkpoint.h"
#include "rl/generation/label_trial.h"
#include "rl/generation/sample_source.h"
#include "rl/generation/weight_hand_over.h"
#include "rl/training/learning_watch.h"
#include "slimexx/dist/process_grid.h"
#include "slimexx/rl/evaluation.h"
#include "slimexx/rl/loaded_model.h"
#include "slimexx/train/trainer.h"

namespace slimexx::rl {

// What updates the policy.
struct TrainerSide {
  LoadedModel policy;
  Decoders decoders;
  std::vector<FrozenModel> frozen;                // as RunConfig::frozen_models
  std::unique_ptr<train::Trainer> trainer;        // null: this rank only generates
  std::unique_ptr<CheckpointWriter> checkpoints;  // there if the trainer is
};

// The grid of all engines; null: each is one rank. Its groups compute on the device; the host's
// tell what is to be done.
struct EngineGrid {
  std::unique_ptr<dist::ProcessGrid> on_device, on_host;
  const dist::Groups& groups() const {
    return on_device ? on_device->groups() : dist::groups_of_one();
  }
  const dist::Groups& host_groups() const { return on_host ? on_host->groups() : groups(); }
};

// What makes samples: from prompts, dumps or examples.
struct RolloutSide {
  TextSide text;
  std::vector<int32_t> stop_token_ids, eval_stop_token_ids;
  std::shared_ptr<const data::PromptSet> prompts;
  std::vector<EvalSet> eval_sets;
  std::unique_ptr<reward::Grader> grader, eval_grader;
  int64_t max_positions = 0;  // tokens of the longest sequence that models are made for
  EngineModel model;          // where the run has engines, as the following
  std::unique_ptr<rollout::Engine> engine;  // null also where this rank only trains
  std::unique_ptr<WeightHandOver> hand_over;
  std::unique_ptr<Generator> generator;
  std::unique_ptr<SampleSource> source;
  std::vector<LabelTrials> label_trials;  // of the prompts, then of the evaluation's sets
  LearningWatch learning;
  std::vector<double> reward_history;  // mean reward by rollout, of this process
  std::vector<EvalResult> last_eval;
};

// Where the run stands.
struct Progress {
  int64_t next_rollout = 0, num_rollouts = 0, optimizer_steps = 0, skipped_steps = 0;
  int64_t skipped_in_a_row = 0;  // the last updates, all of them skipped
  int64_t decay_steps = 0;       // the optimizer step at which the learning rate has decayed
  // The checkpoint's state as of the last moment between two rollouts; empty once an update was
  // made on top of it.
  std::optional<Json> whole_state;
  bool evaluation_is_due = false;  // of the last rollout: it failed, or a signal cut it off
  bool is_done() const { return next_rollout >= num_rollouts; }
};

}  // namespace slimexx::rl
