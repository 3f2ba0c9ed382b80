// Runs the program like a user, and collects its output.
#pragma once
#include <string>
#include <vector>

#include "e2e/program.h"
#include "slimexx/base/json.h"

namespace slimexx::cli {

using e2e::Finished;
using e2e::Folder;
using e2e::read_bytes;

// `arguments` follow the program's name.
Finished run_slimexx(const std::vector<std::string>& arguments);
// Runs the program on several ranks under mpirun; e2e::why_no_ranks() says whether that is
// possible.
Finished run_slimexx_ranks(int num_ranks, const std::vector<std::string>& arguments);

std::string golden_model(const std::string& name);
const std::vector<std::string>& golden_models();
// Parses JSON lines.
std::vector<Json> parse_lines(const std::string& text);

}  // namespace slimexx::cli
