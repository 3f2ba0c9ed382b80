// A fully built training run: session, roles and progress. The constructor loads models and data,
// makes engine and trainer, resumes, and opens the run folder last.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rl/assembly/memory_pool.h"
#include "rl/generation/session.h"
#include "rl/training/roles.h"
#include "slimexx/dist/process_grid.h"

namespace slimexx::rl {

struct TrainingRun {
  TrainingRun(TrainRequest request, dist::World& all_ranks);
  ~TrainingRun();

  Progress progress;
  Session session;
  SharedMemory memory;
  TrainerSide trainer_side;
  RolloutSide rollout_side;
  // Last members, so that they are destroyed first: after a failure, memory that a collective uses
  // may be freed only when nothing waits in that collective.
  std::unique_ptr<dist::ProcessGrid> grid;   // the ranks that train
  std::unique_ptr<dist::ProcessGrid> world;  // all ranks; null: colocated, `grid` has them
  EngineGrid engine_grid;                    // the ranks that generate; made with the engine
};

// longest_generated: tokens of the longest sequence that is generated, evaluation included;
// engine_options fits the engine to it. longest_trained: the same for training.
int64_t longest_generated(const RunConfig& config, const RolloutSide& rollout_side);
rollout::EngineOptions engine_options(const Session& session, const RolloutSide& rollout_side);
int64_t longest_trained(const RunConfig& config, const RolloutSide& rollout_side,
                        const model::ModelSpec& policy);

// ---- frozen_stages.cpp ----
// Places the models of RunConfig::frozen_models and reads the weights of those that stay on the
// device. `longest`: tokens of the longest sample. Collective.
void build_frozen_models(const Session& session, int64_t longest, TrainerSide& trainer_side);
// Reads the weights of transient models into host memory, through the trainer's gradients.
// Collective.
void keep_frozen_models(const Session& session, TrainerSide& trainer_side);
// Loads the reference from the checkpoint if the checkpoint holds one. Collective.
void restore_reference(const Session& session, const io::Checkpoint& checkpoint,
                       TrainerSide& trainer_side);

// ---- engine_grid.cpp ----
EngineGrid make_engine_grid(const Session& session);  // collective

// ---- run_folder.cpp ----
// Prints the banner; from here on the run writes to disk. Collective.
void open_run_folder(TrainingRun& run);

// ---- training_memory.cpp ----
// Takes all memory that is left on the device for engine and trainer; returns the engine's part.
tensor::Tensor take_pool(const Session& session, TrainerSide& trainer_side,
                         const RolloutSide& rollout_side, const dist::Groups& engine_groups,
                         SharedMemory& memory);
std::string memory_table(const TrainingRun& run);  // lines of the banner

std::string describe_checks(const TrainingRun& run);  // for a dry run: what was checked

}  // namespace slimexx::rl
