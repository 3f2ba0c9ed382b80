// How a run starts: in which folder and from which checkpoint. One rank decides it before anything
// is loaded and tells the others, so that no two ranks look at folders that change meanwhile.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "slimexx/rl/folder_lock.h"
#include "slimexx/rl/run_config.h"

namespace slimexx::rl {

// What the user said of --resume.
enum class ResumeWish : uint8_t {
  kNone,    // a new run, or what model.load has
  kNewest,  // --resume: this run's newest checkpoint
  kFolder,  // --resume DIR
  kAuto,    // --resume auto: this run's newest checkpoint, and where there is none a new run
};

struct StartWish {
  ResumeWish resume = ResumeWish::kNone;
  std::string folder = {};    // of kFolder
  bool names_run_dir = true;  // the configuration does; else a free name like it will do
  bool dry_run = false;       // decide, but make and lock nothing
};

// What a run takes of a checkpoint: its state, the weights of one that holds no more (convert-hf)
// too, or the weights whatever there is (model.finetune).
enum class CheckpointUse { kState, kStateOrWeights, kWeights };

struct RunStart {
  std::string run_dir = {};
  std::string checkpoint = {};  // to continue from; empty: none
  CheckpointUse use = CheckpointUse::kState;
  bool is_own = false;           // the checkpoint is one of this run's own folder of checkpoints
  bool sets_rows_aside = false;  // metrics.jsonl holds an attempt that reached no checkpoint
};

// Held while a run lasts. Of what was made and stayed empty the inner folder goes first.
struct RunLocks {
  std::optional<FolderLock> run_dir, checkpoints;
};

// The folder of checkpoints of a run in `run_dir`.
std::string checkpoint_root(const RunConfig& config, const std::string& run_dir);

// Locks the run folder and the folder of checkpoints into `locks`, so that no other run gets them.
// A folder that holds another run is refused with the choice: nothing of it is overwritten. Throws
// Error(kUsage). One rank only.
RunStart decide_start(const RunConfig& config, const StartWish& wish, RunLocks& locks);

// To send a start to the other ranks.
std::string start_to_json(const RunStart& start);
RunStart start_from_json(const std::string& text);

}  // namespace slimexx::rl
