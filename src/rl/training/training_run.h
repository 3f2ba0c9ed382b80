// A training run, built: session, roles and progress. Its constructor loads models and data, makes
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

// On a GPU: the memory in which generation and training take turns.
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
  // Last, so that they go first: after a failure, memory that a collective uses may be freed only
  // once nothing waits in it.
  std::unique_ptr<dist::ProcessGrid> grid;   // of the ranks that train
  std::unique_ptr<dist::ProcessGrid> world;  // of all; null: colocated, where `grid` has them
  EngineGrid engine_grid;                    // of the ranks that generate; made with the engine
};

bool generates_samples(const RunConfig& config);  // else they are a dump's, or examples
bool wants_engine(const RunConfig& config);       // on the ranks that generate
bool wants_reference(const RunConfig& config);
// Of supervised fine-tuning; a reply ends with the first of `stop_tokens`, as generation will.
data::SftSet load_examples(const RunConfig& config, const TextSide& text,
                           const std::vector<int32_t>& stop_tokens);
// Tokens of the longest sequence that is generated, evaluation included, and that is trained; the
// engine for the former.
int64_t longest_generated(const RunConfig& config, const RolloutSide& rollout_side);
rollout::EngineOptions engine_options(const Session& session, const RolloutSide& rollout_side);
int64_t longest_trained(const RunConfig& config, const RolloutSide& rollout_side,
                        const model::ModelSpec& policy);

// ---- reference.cpp ----
// Decoders, and the weights of a reference that stays on the device. `longest`: tokens of the
// longest sample. Collective.
void build_reference(const Session& session, int64_t longest, TrainerSide& trainer_side);
// Reads the weights of another one into host memory, by way of the trainer's gradients. Collective.
void keep_reference(const Session& session, TrainerSide& trainer_side);
// The reference of a run whose checkpoint holds one that followed the policy. Collective.
void restore_reference(const Session& session, const io::Checkpoint& checkpoint,
                       TrainerSide& trainer_side);

// ---- engine_model.cpp ----
EngineGrid make_engine_grid(const Session& session);  // collective
// Of the trainer's weights where the rank trains what its engine holds, else with memory of its
// own. Without parameters and decoder on a rank that only trains. Collective.
EngineModel make_engine_model(const Session& session, const TrainerSide& trainer_side,
                              int64_t max_positions);

// ---- run_folder.cpp ----
// The banner, and from here on the run leaves traces on disk. Collective.
void open_run_folder(TrainingRun& run);

// ---- training_memory.cpp ----
// Takes what is left of the device's memory for engine and trainer; gives the engine's part.
tensor::Tensor take_pool(const Session& session, TrainerSide& trainer_side,
                         const RolloutSide& rollout_side, const dist::Groups& engine_groups,
                         SharedMemory& memory);
std::string memory_table(const TrainingRun& run);  // lines of the banner

std::string describe_checks(const TrainingRun& run);  // of a dry run: what is known to be in order

}  // namespace slimexx::rl
