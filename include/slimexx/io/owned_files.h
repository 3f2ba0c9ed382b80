// Which files the program writes into folders of checkpoints and of models, by name: what it may
// remove there (base/folder.h).
#pragma once
#include <string>
#include <string_view>

#include "slimexx/base/folder.h"

namespace slimexx::io {

// shard-00000-of-00001.safetensors
bool is_shard_name(std::string_view name);

// A save that was cut off: shards, side files and the manifest. Only for folders whose own name
// says that a save makes them.
bool is_checkpoint_file(std::string_view name);

// A Hugging Face folder that is written with the side files of the folder `side_files_from` (empty:
// none): config.json, model.safetensors or model-00001-of-00002.safetensors with their index. While
// it is being written, its weights are called NAME.incomplete.
NameTest exported_files(const std::string& side_files_from);

// The same, and shards of any name: convert-hf keeps the names of what it reads.
NameTest converted_files(const std::string& side_files_from);

}  // namespace slimexx::io
