// The sharded checkpoint format. A checkpoint is a folder of shard files, one per writing rank, in
// safetensors form, and a manifest (manifest.json) that is written last: the folder is a checkpoint
// if and only if the manifest is there and every file it lists has the size and hash it states.
//
// Tensors go by their Hugging Face names and may be cut into pieces over several shards, so a
// checkpoint loads on any grid of ranks. A piece is a range of the flattened tensor or a box of it;
// the manifest lists those of all ranks. Sections keep kinds of state apart: "weights" (any
// dtype, as in the HF file), "master" (f32), "exp_avg" and "exp_avg_sq" (as they are kept),
// "reference" (weights of a reference that followed the policy). Small state (step, counters,
// random state, data cursor, partial samples) is one JSON object in the manifest.
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

// 2 adds boxes; a checkpoint without any is written, and read, as 1.
inline constexpr int kCheckpointFormat = 2;

struct CheckpointTensor {
  std::string section, name;
  tensor::DType dtype;
  std::vector<int64_t> shape;
  std::optional<tensor::DType> export_dtype = {};  // what a Hugging Face folder has it in
  int64_t num_elements() const;
};

// Elements [begin, end) of the flattened tensor, or a box of it where `box` has dimensions; in host
// memory in the tensor's dtype until written. Of a box, neighbours along dimension d are strides[d]
// elements apart in memory.
struct CheckpointPiece {
  std::string section, name;
  int64_t begin = 0, end = 0;
  const void* data = nullptr;
  tensor::Box box = {};
  std::vector<int64_t> strides = {};
};

struct ShardInfo {  // what the manifest says of one file
  std::string file;
  uint64_t size_bytes = 0;
  std::string hash;  // XXH3-128 of the content, hex
  struct Piece {
    std::string section, name;
    int64_t begin, end;
    std::string key;       // the tensor's name inside the shard file
    tensor::Box box = {};  // where it has dimensions, begin and end mean nothing
    int64_t num_elements() const;
  };
  std::vector<Piece> pieces;
  std::vector<CheckpointTensor> tensors =
      {};  // what its rank knows of; not in the manifest's shard
};

// Writes shard `rank` of `num_ranks` into `directory` (made if needed), fsynced. Throws Error(kRun)
// if that is a complete checkpoint. Any thread.
ShardInfo write_shard(const std::string& directory, int rank, int num_ranks,
                      const std::vector<CheckpointTensor>& tensors,
                      std::span<const CheckpointPiece> pieces);

// Writes the manifest: the commit. It lists the tensors of all shards; no rank need know them all.
// Throws Error(kRun) if the pieces do not cover every tensor exactly once. `state` is kept
// verbatim; side files already in `directory` (config.json, tokenizer, ...) are listed with their
// hashes.
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
  std::vector<std::vector<PieceSource>> pieces_;  // by tensor; ranges alone by ascending begin
  std::vector<std::pair<std::string, std::string>> hashes_;  // file name, hash
};

// A counter of a checkpoint's state: json_int, refused unless it is from 0 to kMaxCounter, so that
// sums of counters stay far from overflow.
inline constexpr int64_t kMaxCounter = int64_t{1} << 48;
int64_t read_counter(const Json& state, const std::string& key, const std::string& where);

// The training run's checkpoints/ folder: step_NNNNNN folders and `latest`, a file with the newest
// complete one's name (replaced atomically) and the later ones that were abandoned.
std::string step_directory(const std::string& root, int64_t step);
// The newest complete checkpoint under root (or root itself if it is one); empty if none.
// Incomplete folders are skipped with a warning, and so is a `latest` that cannot be read. Newest
// is the highest step, except steps that were complete when `latest` was set to an earlier one: a
// run went back there and abandoned them. Times of files do not count.
std::string find_latest(const std::string& root);
// As find_latest, of what a user names: a checkpoint, a folder of them, or the folder of a run.
std::string find_checkpoint(const std::string& folder);
void set_latest(const std::string& root, const std::string& step_directory_name);

// A save: start_step gives the empty folder to write to, beside what there is; commit_step, when
// its manifest is written, renames it to the step's name and sets `latest`. A checkpoint of that
// step that was there is removed last: it was abandoned. Throws Error(kEnvironment) where foreign
// files are in the way: the save stays complete under its first name, and find_latest finds it.
std::string start_step(const std::string& root, int64_t step);
void commit_step(const std::string& root, int64_t step);

// Removes all but the newest `keep` complete checkpoints, and every incomplete one older than the
// newest complete one. keep <= 0 keeps all. Steps later than the newest are left alone, and with a
// warning those that hold what no save wrote.
void remove_old(const std::string& root, int64_t keep);
// A step_* folder without a manifest that holds what no save wrote, of a later step than checkpoint
// `after` (empty: of any step); empty if there is none.
std::string find_foreign_step(const std::string& root, const std::string& after = {});
// For the run that writes to root and continues from checkpoint `continued` of it: completes the
// work of a run that was killed while it saved or removed, records in `latest` that the steps after
// `continued` are abandoned, and removes old checkpoints.
void tidy_root(const std::string& root, int64_t keep, const std::string& continued);

}  // namespace slimexx::io
