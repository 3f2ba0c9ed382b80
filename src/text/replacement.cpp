#include "text/replacement.h"

#include <fmt/core.h>

#include <algorithm>

namespace slimexx::text {

Regex read_pattern(const TokenizerSpec& spec) {
  const TokenizerSpec pattern = spec.at("pattern");
  if (pattern.find("Regex")) return Regex::compile(pattern.string("Regex"), pattern.where());
  if (pattern.find("String")) return Regex::literal(pattern.string("String"), pattern.where());
  throw pattern.error("must hold \"String\" or \"Regex\"");
}

Error growth_error(const std::string& where, size_t bytes) {
  return Error(ErrorCode::kInput,
               fmt::format("this step makes more than {} bytes from a text of {}",
                           limit_of_growth(bytes), bytes),
               "no tokenizer needs that: fix the step in the file, or fetch the file again", where);
}

Replacement Replacement::read(const TokenizerSpec& spec) {
  return Replacement(read_pattern(spec), spec.string("content"), spec.where());
}

std::string Replacement::apply(std::string_view text, size_t original_bytes) const {
  std::vector<TextRange> matches;
  pattern_.find_all(text, matches);
  const size_t limit = limit_of_growth(original_bytes);
  if (matches.size() > limit / std::max<size_t>(content_.size(), 1))
    throw growth_error(where_, original_bytes);
  std::string out;
  size_t done = 0;
  for (const TextRange& match : matches) {
    out.append(text.substr(done, match.begin - done)).append(content_);
    done = match.end;
  }
  return out.append(text.substr(done));
}

}  // namespace slimexx::text
