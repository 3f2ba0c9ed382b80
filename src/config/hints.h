// Hints for unknown keys and flags.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "config/flags/flags.h"
#include "slimexx/config/config.h"

namespace slimexx::config {

// A name from verl, OpenRLHF, TRL or NeMo RL and the corresponding key.
struct ForeignName {
  std::string_view owner, name, key;
};

const std::vector<ForeignName>& foreign_names();

// The bound fields and the slime flag for each of them.
struct KnownFields {
  std::vector<FieldInfo> fields;
  std::vector<std::string> flags;  // with dashes in front; empty: none
};
KnownFields collect_known(std::vector<FieldInfo> fields);

// The hint for an unknown key: the key for a name of slime or another framework, the section that
// the key belongs to, or the nearest known key; empty if none is near.
std::string hint_unknown_key(const std::string& path, const KnownFields& known,
                             const std::vector<std::string>& sections);

// The hint for an unknown section with the key paths `leaves`: the keys for names of another
// framework, such as those in verl's actor_rollout_ref; empty if there are none.
std::string hint_unknown_section(const std::vector<std::string>& leaves, const KnownFields& known);

// The key that stands for a flag: its path, followed by ": false" if the flag turns it off, as
// --disable-rewards-normalization does.
std::string key_of_flag(const std::string& flag, const std::string& path);

// The flag named by an unknown key, if no key stands for the flag; null if a field has that name
// or no flag has it.
const KnownFlag* find_keyless_flag(const std::string& path, const KnownFields& known);

// The hint for a flag without a key whose value is refused.
struct FlagRefusal {
  std::string reason, hint;
};
FlagRefusal refuse_flag(const KnownFlag& flag, const std::string& value);

}  // namespace slimexx::config
