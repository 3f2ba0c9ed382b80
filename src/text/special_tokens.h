// The named special tokens of a checkpoint folder (bos_token, eos_token, ...), read from
// tokenizer_config.json and special_tokens_map.json by the rules of transformers.
#pragma once
#include <string>

#include "slimexx/base/json.h"

namespace slimexx::text {

// Returns an object that maps names to texts. `config` and `map` are the objects in the two files;
// pass an empty object for a missing file. An entry of the map, even null, replaces that of the
// config; but if the config has "added_tokens_decoder", the map is not read.
Json merge_special_tokens(const Json& config, const Json& map);

// merge_special_tokens for the files in a folder. Throws Error(kInput) if a file is not a JSON
// object.
Json read_special_tokens(const std::string& directory);

}  // namespace slimexx::text
