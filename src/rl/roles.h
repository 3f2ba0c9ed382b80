// The two roles of a run, and where it stands. Today every rank has both roles, and the engine
// reads the trainer's weights in place: the hand-over's plan has aliases only.
#pragma once
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "run_checkpoint.h"
#include "sample_source.h"
#include "slimexx/rl/evaluation.h"
#include "slimexx/rl/loaded_model.h"
#include "slimexx/train/trainer.h"
#include "weight_hand_over.h"

namespace slimexx::rl {

// What updates the policy.
struct TrainerSide {
  LoadedModel policy, reference;
  bool reference_is_transient = false;  // its weights are read when they are needed
  std::unique_ptr<model::Decoder> decoder, reference_decoder;
  model::ModelParameters weights;  // the policy's
  std::unique_ptr<train::Trainer> trainer;
  std::unique_ptr<CheckpointWriter> checkpoints;
};

// What makes samples: from prompts, dumps or examples.
struct RolloutSide {
  TextSide text;
  std::vector<int32_t> stop_token_ids;
  std::shared_ptr<const data::PromptSet> prompts;
  std::vector<EvalSet> eval_sets;
  std::unique_ptr<reward::Grader> grader, eval_grader;
  std::unique_ptr<rollout::Engine> engine;
  std::unique_ptr<WeightHandOver> hand_over;  // to the engine; there if it is
  std::unique_ptr<Generator> generator;
  std::unique_ptr<SampleSource> source;
  std::vector<double> reward_history;  // mean reward by rollout, of this process
  std::vector<EvalResult> first_eval, last_eval;
};

// Where the run stands.
struct Progress {
  int64_t next_rollout = 0, num_rollouts = 0, optimizer_steps = 0, skipped_steps = 0;
  int64_t skipped_in_a_row = 0;  // the last updates, all of them skipped
  // The checkpoint's state as of the last moment between two rollouts; empty once an update was
  // made on top of it.
  std::optional<Json> whole_state;
  int64_t saved_rollouts = -1;  // of the newest checkpoint that this process began to write
  bool is_done() const { return next_rollout >= num_rollouts; }
};

}  // namespace slimexx::rl
