// Hints for unknown keys and flags.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "config/flags/flags.h"
#include "slimexx/config/config.h"

namespace slimexx::config {

// A name that users of verl, OpenRLHF, TRL or NeMo RL type, and the key that stands for it.
struct ForeignName {
  std::string_view owner, name, key;
};

const std::vector<ForeignName>& foreign_names();

// The fields that are bound, and the flag of slime's that each stands for.
struct KnownFields {
  std::vector<FieldInfo> fields;
  std::vector<std::string> flags;  // with dashes in front; empty: none
};
KnownFields collect_known(std::vector<FieldInfo> fields);

// The remedy for an unknown key: the key that slime's or another framework's name stands for here,
// the section it belongs to, or the nearest known key; empty if none is near.
std::string hint_unknown_key(const std::string& path, const KnownFields& known,
                             const std::vector<std::string>& sections);

// The remedy for an unknown section, from the paths of its keys: the keys here that stand for
// names of another framework, such as all below verl's actor_rollout_ref; empty if there are none.
std::string hint_unknown_section(const std::vector<std::string>& leaves, const KnownFields& known);

// The key that stands for a flag: its path, followed by ": false" if the flag turns it off, as
// --disable-rewards-normalization does.
std::string key_of_flag(const std::string& flag, const std::string& path);

// The flag without a key that an unknown key names; null if a field has that name, or no flag does.
const KnownFlag* find_keyless_flag(const std::string& path, const KnownFields& known);

// The hint for a flag without a key whose value is refused.
struct FlagRefusal {
  std::string reason, hint;
};
FlagRefusal refuse_flag(const KnownFlag& flag, const std::string& value);

}  // namespace slimexx::config
