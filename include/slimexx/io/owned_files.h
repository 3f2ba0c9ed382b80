// Tells by name which files in a checkpoint or model folder the program wrote and may remove
// (base/folder.h).
#pragma once
#include <string>
#include <string_view>

#include "slimexx/base/folder.h"

namespace slimexx::io {

// shard-00000-of-00001.safetensors
bool is_shard_name(std::string_view name);

// Files of an interrupted save: shards, side files and the manifest. Use it only for folders whose
// own name shows that a save made them.
bool is_checkpoint_file(std::string_view name);

// Files of an exported Hugging Face folder: the side files of `side_files_from` (empty: none),
// config.json, model.safetensors or model-00001-of-00002.safetensors with the index, and weights
// that are still being written (NAME.incomplete).
NameTest exported_files(const std::string& side_files_from);

// Like exported_files, plus shards of any name, because convert-hf keeps the shard names of its
// input.
NameTest converted_files(const std::string& side_files_from);

}  // namespace slimexx::io
