// Checkpoints of a training run. Every rank writes its slices of the optimizer's state and of
// frozen weights as a shard, in the background; rank 0 commits when all are done. The writer works
// from a snapshot, or directly from the state if that is in host memory (optimizer_cpu_offload). A
// shard lists the elements of each tensor that it holds, so the format does not depend on how ranks
// split the state. Main thread only.
#pragma once
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "slimexx/dist/collective.h"
#include "slimexx/io/checkpoint.h"
#include "slimexx/train/optimizer.h"

namespace slimexx::rl {

struct CheckpointWriterOptions {
  std::string root;             // folder of step_* folders
  std::string side_files_from;  // config.json, tokenizer ... are copied into every checkpoint
  int64_t keep_last = 3;
  bool async = true;
};

class CheckpointWriter {
 public:
  CheckpointWriter(CheckpointWriterOptions options, dist::Collective& communicator);
  ~CheckpointWriter();
  // Starts writing step `step`; finishes an earlier save that is in flight first. State in host
  // memory must not change before release_state(). `reference` may be null; it has the parameters
  // of `store`. Collective.
  void save(int64_t step, const Json& state, const model::ParameterStore& store,
            const train::ShardedAdamW& optimizer, const model::ParameterStore* reference = nullptr);
  // Waits until the save in flight no longer reads the optimizer's state.
  void release_state();
  // Commits a save that all ranks have written; does not wait. Collective.
  void poll();
  // Waits for the save in flight and commits it. Collective.
  void finish_pending();
  // The step of the last save that is complete or in flight; -1: none, or it failed. A state that
  // was loaded from the folder counts as saved.
  int64_t last_saved() const { return last_saved_; }
  void note_loaded(int64_t step) { last_saved_ = step; }

 private:
  struct Snapshot;
  void commit();
  CheckpointWriterOptions options_;
  dist::Collective& communicator_;
  std::unique_ptr<Snapshot> pending_;
  int64_t last_saved_ = -1;
};

// Throws Error(kEnvironment) if no file can be made in the folder `root` or, if it does not exist,
// in its nearest existing parent. Call on every rank, since each writes a shard.
void check_writable(const std::string& root);

// Host memory that this rank needs while a checkpoint is written.
int64_t snapshot_bytes(const train::ShardedAdamW& optimizer, bool with_reference);

// Whether no rank's masters hold NaN or Inf. Collective.
bool has_finite_weights(const train::ShardedAdamW& optimizer, dist::Collective& communicator);

// Throws Error(kInput) naming the tensor if frozen weights that this rank owns differ from the
// checkpoint by more than the rounding of both types. Skips weights that are loaded from the
// checkpoint.
void check_frozen_weights(const io::Checkpoint& checkpoint, const model::ParameterStore& store,
                          const train::ShardedAdamW& optimizer);

// Loads the masters and moments that this rank owns and publishes the weights. Also loads untrained
// weights that a rule moves, or that are frozen by name. The checkpoint may come from any number of
// ranks and any split. Collective.
void load_training_state(const io::Checkpoint& checkpoint, model::ParameterStore& store,
                         train::ShardedAdamW& optimizer);

// Whether the checkpoint holds a reference; load_reference loads this rank's part of it.
bool has_reference(const io::Checkpoint& checkpoint);
void load_reference(const io::Checkpoint& checkpoint, model::ParameterStore& reference);

}  // namespace slimexx::rl
