#include "text/replacement.h"

namespace slimexx::text {

Regex read_pattern(const TokenizerSpec& spec) {
  const TokenizerSpec pattern = spec.at("pattern");
  if (pattern.find("Regex")) return Regex::compile(pattern.string("Regex"), pattern.where());
  if (pattern.find("String")) return Regex::literal(pattern.string("String"), pattern.where());
  throw pattern.error("must hold \"String\" or \"Regex\"");
}

Replacement Replacement::read(const TokenizerSpec& spec) {
  return Replacement(read_pattern(spec), spec.string("content"));
}

std::string Replacement::apply(std::string_view text) const {
  std::vector<TextRange> matches;
  pattern_.find_all(text, matches);
  if (!content_.empty() && matches.size() > kMaxNormalizedBytes / content_.size()) {
    throw Error(ErrorCode::kInput, "a replacement would make the text larger than 1 GiB");
  }
  std::string out;
  size_t done = 0;
  for (const TextRange& match : matches) {
    out.append(text.substr(done, match.begin - done)).append(content_);
    done = match.end;
  }
  return out.append(text.substr(done));
}

}  // namespace slimexx::text
