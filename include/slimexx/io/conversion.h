// Converts a Hugging Face folder to a sharded checkpoint and back, in bounded memory.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "slimexx/io/tensor_list.h"

namespace slimexx::io {

// Key in a converted checkpoint's state: maps tensors to the files of the original folder.
inline constexpr const char* kHfShardsKey = "hf_shards";

// Writes one writer's part (`index` of `count`) of a checkpoint with section "weights" into
// `directory`. Shards have about `shard_bytes`; each writer has one in memory at a time. Only one
// writer should set `show_progress`.
std::vector<ShardInfo> write_weight_shards(const std::string& directory, const HfFolder& folder,
                                           int64_t shard_bytes, int index, int count,
                                           bool show_progress);
// Copies the folder's side files and commits the shards of all writers as a checkpoint.
void commit_weight_shards(const std::string& directory, const HfFolder& folder,
                          std::vector<ShardInfo> shards);

// Options to export a checkpoint to a Hugging Face folder. Tensors go to the files that the
// checkpoint's state lists (kHfShardsKey), if it lists any.
HfWriteOptions hf_options_of(const Checkpoint& checkpoint, const std::string& side_files_from);

}  // namespace slimexx::io
