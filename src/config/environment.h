// Variables of the environment in a resolved configuration, which keeps ${env:NAME} unexpanded: a
// comment for each tells whether its value is still the same.
#pragma once
#include <map>
#include <set>
#include <string>

namespace slimexx::config {

// "# env NAME 1f2e" for each, a line each. Of the value a digest of 16 bits stands there: enough to
// tell a change, too little to find the value by.
std::string environment_comments(const std::set<std::string>& names);

// NAME -> digest, of the comments of a text.
std::map<std::string, std::string> read_environment_comments(const std::string& yaml);

}  // namespace slimexx::config
