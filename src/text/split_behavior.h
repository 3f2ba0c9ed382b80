// The ways in which a splitting pattern treats its matches and the text between them.
#pragma once
#include <string_view>
#include <vector>

#include "text/regex/regex.h"
#include "text/tokenizer_spec.h"

namespace slimexx::text {

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

SplitBehavior read_split_behavior(const TokenizerSpec& spec);

// Appends the parts of `text`, given the matches in order; empty parts are dropped. `invert` swaps
// matches and gaps.
void split_by_matches(std::string_view text, const std::vector<TextRange>& matches,
                      SplitBehavior behavior, bool invert, std::vector<std::string_view>& parts);

}  // namespace slimexx::text
