// How a run starts: in which folder and from which checkpoint. One rank decides this before
// anything is loaded and tells the others, so that ranks cannot disagree about folders that change
// meanwhile.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "slimexx/rl/folder_lock.h"
#include "slimexx/rl/run_config.h"

namespace slimexx::rl {

// The kinds of --resume.
enum class ResumeWish : uint8_t {
  kNone,    // a new run, or the checkpoint of model.load
  kNewest,  // --resume: this run's newest checkpoint
  kFolder,  // --resume DIR
  kAuto,    // --resume auto: this run's newest checkpoint, or a new run if there is none
};

struct StartWish {
  ResumeWish resume = ResumeWish::kNone;
  std::string folder = {};  // for kFolder
  bool names_run_dir =
      true;  // the configuration sets run_dir; if not, a free name is derived from the default
  bool dry_run = false;  // decide, but make and lock nothing
};

// The parts that a run takes from a checkpoint: the state; the state if there is one, otherwise the
// weights (convert-hf writes only these); or only the weights (model.finetune).
enum class CheckpointUse { kState, kStateOrWeights, kWeights };

struct RunStart {
  std::string run_dir = {};
  std::string checkpoint = {};  // to continue from; empty: none
  CheckpointUse use = CheckpointUse::kState;
  bool is_own = false;           // the checkpoint is in this run's own folder of checkpoints
  bool sets_rows_aside = false;  // metrics.jsonl holds rows of an attempt that saved no checkpoint
};

// Held while a run lasts. Members are destroyed in reverse order: the inner folder is removed
// before the outer one, if both stayed empty.
struct RunLocks {
  std::optional<FolderLock> run_dir, checkpoints;
};

// The folder of checkpoints for a run in `run_dir`.
std::string checkpoint_root(const RunConfig& config, const std::string& run_dir);

// Locks the run folder and the folder of checkpoints into `locks`, so that no other run gets them.
// Throws Error(kUsage), which names the options, if a folder holds another run; overwrites nothing
// of that run. One rank only.
RunStart decide_start(const RunConfig& config, const StartWish& wish, RunLocks& locks);

// Serializes a start to send it to the other ranks.
std::string start_to_json(const RunStart& start);
RunStart start_from_json(const std::string& text);

}  // namespace slimexx::rl
