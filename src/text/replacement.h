// {"pattern": {"String"|"Regex": ...}, "content": ...}: of a normalizer or a decoder.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "text/regex.h"
#include "text/tokenizer_spec.h"

namespace slimexx::text {

// No text of a tokenizer may be, or become, larger: offsets fit in 31 bits.
inline constexpr size_t kMaxNormalizedBytes = size_t{1} << 30;

// The regular expression of a "pattern" member; a string in it stands for itself.
Regex read_pattern(const TokenizerSpec& spec);

class Replacement {
 public:
  static Replacement read(const TokenizerSpec& spec);
  // Every match becomes the content, which is taken literally.
  std::string apply(std::string_view text) const;

 private:
  Replacement(Regex pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  Regex pattern_;
  std::string content_;
};

}  // namespace slimexx::text
