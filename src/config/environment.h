// A resolved configuration keeps ${env:NAME} unexpanded. A comment for each variable has a digest
// of its value, so that changes can be detected.
#pragma once
#include <map>
#include <set>
#include <string>

namespace slimexx::config {

// One line "# env NAME 1f2e" per variable. A digest of 16 bits is enough to detect a change, and
// too short to recover the value.
std::string environment_comments(const std::set<std::string>& names);

// Reads these comments from a text: NAME -> digest.
std::map<std::string, std::string> read_environment_comments(const std::string& yaml);

}  // namespace slimexx::config
