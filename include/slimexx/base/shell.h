// Commands that are shown to be copied into a shell.
#pragma once
#include <string>

namespace slimexx {

// The word as it stands if a shell takes it so, else in single quotes.
std::string quote_for_shell(const std::string& word);

}  // namespace slimexx
