// Hugging Face folder <-> sharded checkpoint, a bounded amount in memory at a time.
#pragma once
#include <string>

#include "slimexx/io/tensor_list.h"

namespace slimexx::io {

// Key of a converted checkpoint's state: tensor -> file of the folder that it came from.
inline constexpr const char* kHfShardsKey = "hf_shards";

// `directory` becomes a checkpoint with section "weights", side files of the folder included.
// Shards hold about `shard_bytes` each, and one is in memory at a time.
void write_sharded(const std::string& directory, const HfFolder& folder, int64_t shard_bytes);

// `directory` becomes a folder that transformers loads, with the checkpoint's side files. Tensors
// go to the files that the checkpoint's state names, if it does.
void write_hf(const std::string& directory, const Checkpoint& checkpoint, const TensorList& weights,
              const std::string& side_files_from);

}  // namespace slimexx::io
