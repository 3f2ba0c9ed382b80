// What to say about a key that nobody asked for.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "slimexx/config/config.h"

namespace slimexx::config {

// slime's flag for a field, "--rollout-batch-size"; empty: slime has none.
std::string slime_flag(const FieldInfo& field);

// All flags that slime itself declares, without the dashes in front.
const std::vector<std::string_view>& slime_flags();

// The remedy for an unknown key: the key that slime's, verl's, OpenRLHF's or TRL's name stands for
// here, the section it belongs to, or the nearest known key; empty if nothing is near.
std::string hint_unknown_key(const std::string& path, const std::vector<FieldInfo>& fields,
                             const std::vector<std::string>& sections);

}  // namespace slimexx::config
