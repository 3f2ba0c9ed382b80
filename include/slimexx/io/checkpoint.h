// The sharded checkpoint format. A checkpoint is a folder with one safetensors file (shard) per
// writing rank and a manifest (manifest.json), which is written last. The folder is a checkpoint
// if and only if the manifest exists and every file it lists has the stated size and hash.
//
// Tensors have their Hugging Face names and may be split into pieces over several shards, so a
// checkpoint loads on any grid of ranks. A piece is a range of the flattened tensor or a box
// (sub-block) of the tensor; the manifest lists the pieces of all ranks. Sections separate kinds
// of state: "weights" (any dtype, as in the HF file), "master" (f32), "exp_avg" and "exp_avg_sq"
// (in the optimizer's dtype), "reference" (weights of a reference model that is updated from the
// policy). Small state (step, counters, random state, data cursor, partial samples) is one JSON
// object in the manifest.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "slimexx/base/json.h"
#include "slimexx/io/safetensors.h"
#include "slimexx/tensor/box.h"

namespace slimexx::io {

// Version 2 adds boxes; a checkpoint without boxes is written and read as version 1.
inline constexpr int kCheckpointFormat = 2;

struct CheckpointTensor {
  std::string section, name;
  tensor::DType dtype;
  std::vector<int64_t> shape;
  std::optional<tensor::DType> export_dtype = {};  // dtype in a Hugging Face folder
  int64_t num_elements() const;
};

// Elements [begin, end) of the flattened tensor, or, if `box` has dimensions, that box of the
// tensor. `data` is host memory in the tensor's dtype and must stay valid until written. For a
// box, strides[d] is the stride of dimension d in memory, in elements.
struct CheckpointPiece {
  std::string section, name;
  int64_t begin = 0, end = 0;
  const void* data = nullptr;
  tensor::Box box = {};
  std::vector<int64_t> strides = {};
};

struct ShardInfo {  // the manifest's entry for one file
  std::string file;
  uint64_t size_bytes = 0;
  std::string hash;  // XXH3-128 of the content, hex
  struct Piece {
    std::string section, name;
    int64_t begin, end;
    std::string key;       // the tensor's name inside the shard file
    tensor::Box box = {};  // if it has dimensions, begin and end are unused
    int64_t num_elements() const;
  };
  std::vector<Piece> pieces;
  std::vector<CheckpointTensor> tensors =
      {};  // all tensors this rank declares; not in the manifest's entry
};

// Writes shard `rank` of `num_ranks` into `directory` (made if needed), fsynced. Throws Error(kRun)
// if `directory` already is a complete checkpoint. May be called on any thread.
ShardInfo write_shard(const std::string& directory, int rank, int num_ranks,
                      const std::vector<CheckpointTensor>& tensors,
                      std::span<const CheckpointPiece> pieces);

// Writes the manifest, which commits the checkpoint. It lists the union of the tensors that the
// shards declare. Throws Error(kRun) if the pieces do not cover every tensor exactly once. `state`
// is kept verbatim; side files already in `directory` (config.json, tokenizer, ...) are listed
// with their hashes.
void write_manifest(const std::string& directory, const std::vector<ShardInfo>& shards,
                    const Json& state);

std::string shard_to_json(
    const ShardInfo& shard);  // to send a shard's info to the rank that commits
ShardInfo shard_from_json(const std::string& text);

class Checkpoint {
 public:
  // Checks format version, coverage and sizes; hashes are checked by verify_hashes().
  static Checkpoint open(const std::string& directory);
  const std::string& directory() const { return directory_; }
  const Json& state() const { return *state_; }
  const std::vector<CheckpointTensor>& tensors() const { return tensors_; }
  const CheckpointTensor* find(const std::string& section, const std::string& name) const;
  // Elements [begin, end) in the tensor's own dtype. Throws Error(kInput) if absent.
  void read(const std::string& section, const std::string& name, int64_t begin, int64_t end,
            void* destination) const;
  // Throws Error(kInput) naming the first file whose hash differs.
  void verify_hashes() const;

 private:
  struct PieceSource {
    size_t file;
    const TensorEntry* entry;
    int64_t begin, end;
    tensor::Box box;
  };
  void read_box(size_t tensor, const tensor::Box& box, char* destination) const;
  std::string directory_;
  std::shared_ptr<Json> state_;
  std::vector<CheckpointTensor> tensors_;
  std::map<std::pair<std::string, std::string>, size_t> index_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<std::vector<PieceSource>> pieces_;  // by tensor; by ascending begin if all are ranges
  std::vector<std::pair<std::string, std::string>> hashes_;  // file name, hash
};

// Reads a counter from a checkpoint's state with json_int. Refuses values outside
// 0..kMaxCounter, so that sums of counters cannot overflow.
inline constexpr int64_t kMaxCounter = int64_t{1} << 48;
int64_t read_counter(const Json& state, const std::string& key, const std::string& where);

// A training run's checkpoints/ folder holds step_NNNNNN folders and the file `latest` (replaced
// atomically): the name of the newest complete checkpoint, and the later steps that a resume from
// an earlier step abandoned.
std::string step_directory(const std::string& root, int64_t step);
// The newest complete checkpoint under root (or root itself if it is one); empty if none. Skips
// incomplete folders and an unreadable `latest` with a warning. The newest is the highest step that
// is not abandoned. A step is abandoned if it was complete when `latest` was set to an earlier
// step, because a run resumed from that earlier step. File times are ignored.
std::string find_latest(const std::string& root);
// find_latest for a path from the user: a checkpoint, a folder of checkpoints or a run's folder.
std::string find_checkpoint(const std::string& folder);
void set_latest(const std::string& root, const std::string& step_directory_name);

// One save: start_step returns a new empty folder to write to. After the manifest is written,
// commit_step renames the folder to the step's name and sets `latest`. An (abandoned) checkpoint of
// that step is removed last. Throws Error(kEnvironment) if foreign files are in the way; the save
// then stays complete under the name from start_step, and find_latest finds it.
std::string start_step(const std::string& root, int64_t step);
void commit_step(const std::string& root, int64_t step);

// Removes all but the newest `keep` complete checkpoints, and every folder without a manifest that
// is older than the newest complete one. keep <= 0 keeps all. Keeps steps after the newest
// checkpoint and, with a warning, folders with files that no save wrote.
void remove_old(const std::string& root, int64_t keep);
// The folder of a step later than checkpoint `after` (empty: any step) that has no manifest and
// contains files that no save wrote. Returns an empty string if there is none.
std::string find_foreign_step(const std::string& root, const std::string& after = {});
// Called by the run that writes to root and resumes from its checkpoint `continued`. Finishes
// saves and removals that a killed run left incomplete, records in `latest` that the steps after
// `continued` are abandoned, and removes old checkpoints.
void tidy_root(const std::string& root, int64_t keep, const std::string& continued);

}  // namespace slimexx::io
