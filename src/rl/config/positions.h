// Whether prompts and their responses fit the positions that a model knows.
#pragma once
#include <cstdint>
#include <string>

#include "slimexx/data/prompts.h"

namespace slimexx::rl {

struct PositionKeys {
  std::string file;                    // of the prompts
  const char *response, *prompt;       // the keys that limit both
  const char* of_what = "";            // " of the evaluation"
  const char* known_by = "the model";  // knows the positions
};

// Throws Error(kUsage) where the longest prompt and a full response have more tokens than
// `max_positions`. Where that prompt alone leaves no room for a token, its row is named.
void check_positions(const data::PromptSet& prompts, int64_t response_tokens, int64_t max_positions,
                     const PositionKeys& keys);

}  // namespace slimexx::rl
