#include "text/split_behavior.h"

#include <fmt/core.h>

#include <algorithm>

namespace slimexx::text {
namespace {

struct Part {
  TextRange range;
  bool is_match;
};

std::vector<Part> cover(std::string_view text, const std::vector<TextRange>& matches, bool invert) {
  std::vector<Part> parts;
  parts.reserve(2 * matches.size() + 1);
  size_t done = 0;
  for (const TextRange& match : matches) {
    if (match.begin != done) parts.push_back({{done, match.begin}, invert});
    parts.push_back({match, !invert});
    done = match.end;
  }
  if (done != text.size()) parts.push_back({{done, text.size()}, invert});
  return parts;
}

// Joins each match to the part before it in the order of `parts`, unless that is a match too.
std::vector<TextRange> merge_matches(const std::vector<Part>& parts, bool backwards) {
  std::vector<TextRange> merged;
  bool previous_match = false;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[backwards ? parts.size() - 1 - i : i];
    if (part.is_match && !previous_match && !merged.empty()) {
      (backwards ? merged.back().begin : merged.back().end) =
          backwards ? part.range.begin : part.range.end;
    } else {
      merged.push_back(part.range);
    }
    previous_match = part.is_match;
  }
  if (backwards) std::reverse(merged.begin(), merged.end());
  return merged;
}

std::vector<TextRange> merge_runs(const std::vector<Part>& parts) {
  std::vector<TextRange> merged;
  bool previous_match = false;
  for (const Part& part : parts) {
    if (part.is_match == previous_match && !merged.empty()) {
      merged.back().end = part.range.end;
    } else {
      merged.push_back(part.range);
    }
    previous_match = part.is_match;
  }
  return merged;
}

void add_part(std::string_view text, TextRange range, std::vector<std::string_view>& parts) {
  if (range.end > range.begin) parts.push_back(text.substr(range.begin, range.end - range.begin));
}

}  // namespace

SplitBehavior read_split_behavior(const TokenizerSpec& spec) {
  const std::string name = spec.string("behavior");
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  spec.at("behavior").unsupported(fmt::format("the behavior {}", name));
}

void split_by_matches(std::string_view text, const std::vector<TextRange>& matches,
                      SplitBehavior behavior, bool invert, std::vector<std::string_view>& parts) {
  if (behavior == SplitBehavior::kIsolated) {
    size_t done = 0;
    for (const TextRange& match : matches) {
      add_part(text, {done, match.begin}, parts);
      add_part(text, match, parts);
      done = match.end;
    }
    add_part(text, {done, text.size()}, parts);
    return;
  }
  const std::vector<Part> covering = cover(text, matches, invert);
  if (behavior == SplitBehavior::kRemoved) {
    for (const Part& part : covering) {
      if (!part.is_match) add_part(text, part.range, parts);
    }
    return;
  }
  const auto merged = behavior == SplitBehavior::kContiguous
                          ? merge_runs(covering)
                          : merge_matches(covering, behavior == SplitBehavior::kMergedWithNext);
  for (const TextRange& range : merged) add_part(text, range, parts);
}

}  // namespace slimexx::text
