// From argv to a verb with its flags parsed. An unknown verb or flag names the nearest one.
#pragma once
#include <string>
#include <vector>

#include "cli/verbs.h"

namespace slimexx::cli {

// What argv asks for: text for stdout (help), or a verb to run.
struct Invocation {
  std::string text;
  VerbBody body;
};

// Throws Error(kUsage). Sets the log level that -v and -q ask for.
Invocation parse_command_line(const std::vector<std::string>& arguments);

}  // namespace slimexx::cli
