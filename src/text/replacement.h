// {"pattern": {"String"|"Regex": ...}, "content": ...}: of a normalizer or a decoder.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "text/regex/regex.h"
#include "text/tokenizer_spec.h"

namespace slimexx::text {

// A text longer than this is not tokenized in one piece: words, matches and ids take up to 25 bytes
// of memory a byte.
inline constexpr size_t kMaxTextBytes = size_t{32} << 20;

// The longest text that normalizers and decoders may make of `bytes` bytes. One character becomes
// at most 11 times as long under NFKC, and two or three times under the other steps of real files.
constexpr size_t limit_of_growth(size_t bytes) { return 32 * bytes + 1024; }

// Error(kInput) at the step of tokenizer.json that made a text longer than that.
Error growth_error(const std::string& where, size_t bytes);

// The regular expression of a "pattern" member; a string in it stands for itself.
Regex read_pattern(const TokenizerSpec& spec);

class Replacement {
 public:
  static Replacement read(const TokenizerSpec& spec);
  // Every match becomes the content, which is taken literally. Throws growth_error(where,
  // original_bytes) before it makes more than limit_of_growth(original_bytes).
  std::string apply(std::string_view text, size_t original_bytes) const;

 private:
  Replacement(Regex pattern, std::string content, std::string where)
      : pattern_(std::move(pattern)), content_(std::move(content)), where_(std::move(where)) {}
  Regex pattern_;
  std::string content_;
  std::string where_;
};

}  // namespace slimexx::text
