// The names of a model folder's shards.
#pragma once
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "slimexx/io/hf_folder.h"
#include "slimexx/io/safetensors.h"

namespace slimexx::io {

// The files that hold tensors, in the order of the tensors' names.
inline std::vector<std::string> shard_names(const HfFolder& folder) {
  std::vector<std::string> names;
  for (const std::string& tensor : folder.tensor_names()) {
    const std::string path = folder.find(tensor)->file->path();
    const std::string name = std::filesystem::path(path).filename().string();
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return names;
}

}  // namespace slimexx::io
