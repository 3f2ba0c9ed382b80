// Checkpoints of a training run: every rank writes its slices of the optimizer's state, and of the
// weights of frozen parameters, as a shard, in the background; rank 0 commits when all are done. It
// writes from a snapshot, or, where the state is in host memory anyhow (optimizer_cpu_offload),
// from the state itself. A shard says of which tensors it holds which elements, so that how ranks
// cut the state is no part of the format. Main thread only.
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
  // Starts writing step `step`; an earlier save that is still under way is finished first. State in
  // host memory must not change before release_state(). `reference`, if there is one to write, has
  // the parameters of `store`. Collective.
  void save(int64_t step, const Json& state, const model::ParameterStore& store,
            const train::ShardedAdamW& optimizer, const model::ParameterStore* reference = nullptr);
  // Waits until the save under way no longer reads the optimizer's state.
  void release_state();
  // Commits a save that all ranks have written; does not wait. Collective.
  void poll();
  // Waits for the save under way and commits it. Collective.
  void finish_pending();
  // The step of the last save that is complete or under way; -1: none, or it failed. A state that
  // was loaded from the folder counts as saved there.
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

// Throws Error(kEnvironment) if no file can be made in folder `root` of checkpoints, or, where it
// is yet to be made, in the folder above that is there. Every rank writes its shard: ask on each.
void check_writable(const std::string& root);

// Host memory that this rank takes while a checkpoint is written.
int64_t snapshot_bytes(const train::ShardedAdamW& optimizer, bool with_reference);

// Whether no rank's masters hold NaN or Inf. Collective.
bool has_finite_weights(const train::ShardedAdamW& optimizer, dist::Collective& communicator);

// Throws Error(kInput) naming the tensor if frozen weights that this rank owns are not those of the
// checkpoint, up to the rounding of the types of both; those that a rule may have moved aside.
void check_frozen_weights(const io::Checkpoint& checkpoint, const model::ParameterStore& store,
                          const train::ShardedAdamW& optimizer);

// Loads the masters and moments that this rank owns, of a checkpoint of any number of ranks and any
// cut, and publishes the weights; and the weights that a rule moves. Collective.
void load_training_state(const io::Checkpoint& checkpoint, model::ParameterStore& store,
                         train::ShardedAdamW& optimizer);

// The reference that a checkpoint may hold: all that this rank has of it.
bool has_reference(const io::Checkpoint& checkpoint);
void load_reference(const io::Checkpoint& checkpoint, model::ParameterStore& reference);

}  // namespace slimexx::rl
