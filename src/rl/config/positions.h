// Checks that prompts with their responses fit the model's positions.
#pragma once
#include <cstdint>
#include <string>

#include "slimexx/data/prompts.h"

namespace slimexx::rl {

struct PositionKeys {
  std::string file;                    // file of the prompts
  const char *response, *prompt;       // the keys that limit their lengths
  const char* of_what = "";            // " of the evaluation"
  const char* known_by = "the model";  // subject of "supports N positions"
};

// Throws Error(kUsage) if the longest prompt with a full response has more than `max_positions`
// tokens. If that prompt alone leaves no room for a response, the error names its row.
void check_positions(const data::PromptSet& prompts, int64_t response_tokens, int64_t max_positions,
                     const PositionKeys& keys);

}  // namespace slimexx::rl
