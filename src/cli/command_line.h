// Parses argv to a verb with its flags. For an unknown verb or flag the error names the nearest
// one.
#pragma once
#include <string>
#include <vector>

#include "cli/verbs.h"

namespace slimexx::cli {

// The result of parsing argv: text for stdout (help), or a verb to run.
struct Invocation {
  std::string text;
  VerbBody body;
};

// Throws Error(kUsage). Also sets the log level from -v and -q.
Invocation parse_command_line(const std::vector<std::string>& arguments);

}  // namespace slimexx::cli
