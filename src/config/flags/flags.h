// The flags of slime, Megatron and SGLang, and the status of each here.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "slimexx/config/config.h"

namespace slimexx::config {

enum class FlagStatus : uint8_t {
  kKey,         // a key stands for it (FieldMeta::slime); the key says whether it works or is later
  kNotNeeded,   // taken where its value asks for nothing that is missing, without effect
  kLater,       // planned; taken where its value does not ask for it
  kPythonOnly,  // wants Python or slime's servers
};

struct KnownFlag {
  std::string_view owner;  // "slime", "Megatron", "SGLang", "sglang-config", a tool
  std::string_view name;  // "mem-fraction-static"; of SGLang without the prefix that slime gives it
  FlagStatus status;
  std::string_view values;  // that are taken, "a|b"; empty: of kNotNeeded any, of kLater none
  std::string_view text;    // why it is not needed, what is planned, what to use instead
};

const std::vector<KnownFlag>& known_flags();

// As a user types it, without the dashes in front: "sglang-mem-fraction-static".
std::string typed_name(const KnownFlag& flag);

// The flag that a key's name stands for: with dashes or underscores, SGLang's with or without
// their prefix. Null if there is none, and of the keys of
// --sglang-config's file and of tools, which are no keys of a configuration.
const KnownFlag* find_flag(const std::string& word);

// Whether a flag that has no key is accepted with this value.
bool takes_value(const KnownFlag& flag, const std::string& value);

// "--rollout-batch-size", "rollout_batch_size" and "rollout-batch-size" as the last of them.
std::string dash_name(std::string word);

// slime's flag for a field, "--rollout-batch-size"; empty: slime has none.
std::string slime_flag(const FieldInfo& field);

}  // namespace slimexx::config
