// Quoting for commands that users copy into a shell.
#pragma once
#include <string>

namespace slimexx {

// The word unchanged if that is safe in a shell, otherwise in single quotes.
std::string quote_for_shell(const std::string& word);

}  // namespace slimexx
