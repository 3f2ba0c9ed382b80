#include "rl/config/positions.h"

#include <fmt/format.h>

#include <algorithm>

#include "slimexx/base/error.h"

namespace slimexx::rl {

void check_positions(const data::PromptSet& prompts, int64_t response_tokens, int64_t max_positions,
                     const PositionKeys& keys) {
  const int64_t prompt = prompts.longest(), longest = prompt + response_tokens;
  if (longest <= max_positions) return;
  if (prompt >= max_positions) {
    const auto row = std::ranges::find(prompts.prompts(), prompt,
                                       [](const data::Prompt& p) { return std::ssize(p.tokens); });
    throw Error(ErrorCode::kUsage,
                fmt::format("the prompt alone has {} tokens, but {} supports {} positions", prompt,
                            keys.known_by, max_positions),
                fmt::format("drop such long prompts with {}, or use a model with more positions",
                            keys.prompt),
                fmt::format("{}: row {}", keys.file, row->index));
  }
  throw Error(
      ErrorCode::kUsage,
      fmt::format(
          "the longest prompt{} and a full response are {} tokens, but {} supports {} positions",
          keys.of_what, longest, keys.known_by, max_positions),
      fmt::format("lower {} to {} or less, or drop long prompts with {}", keys.response,
                  max_positions - prompt, keys.prompt),
      "max_position_embeddings");
}

}  // namespace slimexx::rl
