// The two roles of a run, and its progress. Colocated ranks have both roles. If a colocated rank
// trains exactly what its engine holds, the engine reads the trainer's weights in place and the
// hand-over's plan has aliases only; otherwise the engine has its own weights. A disaggregated rank
// has one role, and its policy, or its engine's model, has no parameters.
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
#include "slimexx/tensor/device_kinds.h"
#include "slimexx/train/trainer.h"

namespace slimexx::rl {

// The parts of a rank that update the policy.
struct TrainerSide {
  LoadedModel policy;
  Decoders decoders;
  std::vector<FrozenModel> frozen;                // as RunConfig::frozen_models
  std::unique_ptr<train::Trainer> trainer;        // null: this rank only generates
  std::unique_ptr<CheckpointWriter> checkpoints;  // null if `trainer` is null
};

// The grid of all engines; null: each engine is one rank. Groups on the device compute; groups on
// the host exchange commands.
struct EngineGrid {
  std::unique_ptr<dist::ProcessGrid> on_device, on_host;
  std::optional<tensor::DecodeRates> decode_rates;  // the same on all ranks of an engine
  const dist::Groups& groups() const {
    return on_device ? on_device->groups() : dist::groups_of_one();
  }
  const dist::Groups& host_groups() const { return on_host ? on_host->groups() : groups(); }
};

// The source of samples: prompts, dumps or examples.
struct RolloutSide {
  TextSide text;
  std::vector<int32_t> stop_token_ids, eval_stop_token_ids;
  std::shared_ptr<const data::PromptSet> prompts;
  std::vector<EvalSet> eval_sets;
  std::unique_ptr<reward::Grader> grader, eval_grader;
  int64_t max_positions = 0;  // tokens of the longest sequence that the decoders support
  EngineModel model;          // this and the next members are set if the run has engines
  std::unique_ptr<rollout::Engine> engine;  // also null if this rank only trains
  std::unique_ptr<WeightHandOver> hand_over;
  std::unique_ptr<Generator> generator;
  std::unique_ptr<SampleSource> source;
  std::vector<LabelTrials> label_trials;  // for the prompts, then for the evaluation sets
  LearningWatch learning;
  std::vector<double> reward_history;  // mean reward by rollout, for this process
  std::vector<EvalResult> last_eval;
};

// Progress of the run.
struct Progress {
  int64_t next_rollout = 0, num_rollouts = 0, optimizer_steps = 0, skipped_steps = 0;
  int64_t skipped_in_a_row = 0;  // number of skipped updates at the end
  int64_t decay_steps = 0;       // optimizer step at which the learning rate's decay ends
  // The checkpoint's state at the last point between two rollouts; empty once an update has changed
  // the weights.
  std::optional<Json> whole_state;
  bool evaluation_is_due = false;  // the evaluation after the last rollout failed or was cut off
  bool is_done() const { return next_rollout >= num_rollouts; }
};

}  // namespace slimexx::rl
