// The named special tokens of a checkpoint folder (bos_token, eos_token, ...), as transformers
// takes them from tokenizer_config.json and special_tokens_map.json.
#pragma once
#include <string>

#include "slimexx/base/json.h"

namespace slimexx::text {

// An object of name and text. `config` and `map` are the two files' objects; a file that is missing
// is an empty object. An entry of the map replaces that of the config, null included, but where the
// config has "added_tokens_decoder" the map is not read.
Json merge_special_tokens(const Json& config, const Json& map);

// The same of a folder. Throws Error(kInput) for a file that is no JSON object.
Json read_special_tokens(const std::string& directory);

}  // namespace slimexx::text
