// The flags of slime, Megatron and SGLang, with their status in this program.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "slimexx/config/config.h"

namespace slimexx::config {

enum class FlagStatus : uint8_t {
  kKey,         // a key stands for it (FieldMeta::slime); the key has the status
  kNotNeeded,   // accepted without effect, if the value is in `values`
  kLater,       // planned; accepted for values that do not enable it
  kPythonOnly,  // needs Python or slime's servers
};

struct KnownFlag {
  std::string_view owner;  // "slime", "Megatron", "SGLang", "sglang-config", a tool
  std::string_view name;   // "mem-fraction-static"; SGLang's without slime's prefix
  FlagStatus status;
  std::string_view values;  // accepted values, as "a|b"; empty: any for kNotNeeded, none for kLater
  std::string_view text;    // why it is not needed, what is planned, what to use instead
};

const std::vector<KnownFlag>& known_flags();

// The flag as a user types it, without leading dashes: "sglang-mem-fraction-static".
std::string typed_name(const KnownFlag& flag);

// Finds a flag by name, with dashes or underscores; SGLang's with or without their prefix. Null if
// there is none. Does not find keys of the --sglang-config file and flags of tools, which are not
// configuration keys.
const KnownFlag* find_flag(const std::string& word);

// Whether a flag without a key is accepted with this value.
bool takes_value(const KnownFlag& flag, const std::string& value);

// Converts "--rollout-batch-size" and "rollout_batch_size" to "rollout-batch-size".
std::string dash_name(std::string word);

// slime's flag for a field, such as "--rollout-batch-size"; empty if slime has none.
std::string slime_flag(const FieldInfo& field);

}  // namespace slimexx::config
