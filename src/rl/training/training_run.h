// A training run, built: session, roles and progress. The constructor loads models and data, makes
// engine and trainer, resumes, and opens the run folder last.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rl/generation/session.h"
#include "rl/plan/memory_plan.h"
#include "rl/training/roles.h"
#include "slimexx/dist/process_grid.h"

namespace slimexx::rl {

// On a GPU: the memory that generation and training use in turn.
struct SharedMemory {
  std::optional<MemoryPlan> plan;
  tensor::Buffer pool;
};

struct TrainingRun {
  TrainingRun(TrainRequest request, dist::World& all_ranks);
  ~TrainingRun();

  Progress progress;
  Session session;
  SharedMemory memory;
  TrainerSide trainer_side;
  RolloutSide rollout_side;
  // Last, so that these are destroyed first: after a failure, memory that a collective uses may be
  // freed only when nothing waits in it.
  std::unique_ptr<dist::ProcessGrid> grid;   // the ranks that train
  std::unique_ptr<dist::ProcessGrid> world;  // all ranks; null: colocated, `grid` has them
  EngineGrid engine_grid;                    // the ranks that generate; made with the engine
};

bool generates_samples(const RunConfig& config);  // otherwise they come from a dump or are examples
bool wants_engine(const RunConfig& config);       // on ranks that generate
bool wants_reference(const RunConfig& config);
// Examples for supervised fine-tuning. A reply ends with the first of `stop_tokens`, as in
// generation.
data::SftSet load_examples(const RunConfig& config, const TextSide& text,
                           const std::vector<int32_t>& stop_tokens);
// Tokens of the longest sequence that is generated (evaluation included), or trained.
// engine_options uses the former.
int64_t longest_generated(const RunConfig& config, const RolloutSide& rollout_side);
rollout::EngineOptions engine_options(const Session& session, const RolloutSide& rollout_side);
int64_t longest_trained(const RunConfig& config, const RolloutSide& rollout_side,
                        const model::ModelSpec& policy);

// ---- reference.cpp ----
// Makes the decoders, and the weights of a reference that stays on the device. `longest`: tokens of
// the longest sample. Collective.
void build_reference(const Session& session, int64_t longest, TrainerSide& trainer_side);
// Reads a transient reference's weights into host memory, through the gradients' memory.
// Collective.
void keep_reference(const Session& session, TrainerSide& trainer_side);
// Restores a reference that followed the policy from a checkpoint that holds it. Collective.
void restore_reference(const Session& session, const io::Checkpoint& checkpoint,
                       TrainerSide& trainer_side);

// ---- engine_model.cpp ----
EngineGrid make_engine_grid(const Session& session);  // collective
// Uses the trainer's weights if the rank trains exactly what its engine holds; otherwise allocates
// its own. Has no parameters and no decoder on a rank that only trains. Collective.
EngineModel make_engine_model(const Session& session, const TrainerSide& trainer_side,
                              int64_t max_positions);

// ---- run_folder.cpp ----
// Prints the banner; from here on the run writes to disk. Collective.
void open_run_folder(TrainingRun& run);

// ---- training_memory.cpp ----
// Takes the rest of the device's memory for engine and trainer; returns the engine's part.
tensor::Tensor take_pool(const Session& session, TrainerSide& trainer_side,
                         const RolloutSide& rollout_side, const dist::Groups& engine_groups,
                         SharedMemory& memory);
std::string memory_table(const TrainingRun& run);  // lines of the banner

std::string describe_checks(const TrainingRun& run);  // for a dry run: what was checked

}  // namespace slimexx::rl
