// Hugging Face folder <-> sharded checkpoint, a bounded amount in memory at a time.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "slimexx/io/tensor_list.h"

namespace slimexx::io {

// Key of a converted checkpoint's state: tensor -> file of the folder that it came from.
inline constexpr const char* kHfShardsKey = "hf_shards";

// The shards of a checkpoint with section "weights" that writer `index` of `count` writes into
// `directory`; `show_progress` for one of them. Shards hold about `shard_bytes` each, and one is in
// memory at a time.
std::vector<ShardInfo> write_weight_shards(const std::string& directory, const HfFolder& folder,
                                           int64_t shard_bytes, int index, int count,
                                           bool show_progress);
// Makes a checkpoint of the shards of all writers, side files of the folder included.
void commit_weight_shards(const std::string& directory, const HfFolder& folder,
                          std::vector<ShardInfo> shards);

// Options of a folder with the weights of a checkpoint: tensors go to the files that the
// checkpoint's state names, if it does.
HfWriteOptions hf_options_of(const Checkpoint& checkpoint, const std::string& side_files_from);

}  // namespace slimexx::io
