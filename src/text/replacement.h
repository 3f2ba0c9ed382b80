// {"pattern": {"String"|"Regex": ...}, "content": ...} in a normalizer or a decoder.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "text/regex/regex.h"
#include "text/tokenizer_spec.h"

namespace slimexx::text {

// The longest text that is tokenized at once: words, matches and ids take up to 25 bytes of memory
// per byte of text.
inline constexpr size_t kMaxTextBytes = size_t{32} << 20;

// The longest text that normalizers and decoders may make from `bytes` bytes. NFKC makes a
// character at most 11 times as long, and other steps in real files two or three times.
constexpr size_t limit_of_growth(size_t bytes) { return 32 * bytes + 1024; }

// Makes an Error(kInput) at the step of tokenizer.json that exceeded limit_of_growth.
Error growth_error(const std::string& where, size_t bytes);

// The regular expression of a "pattern" member; a "String" matches literally.
Regex read_pattern(const TokenizerSpec& spec);

class Replacement {
 public:
  static Replacement read(const TokenizerSpec& spec);
  // Replaces every match by the content, which is taken literally. Throws growth_error(where,
  // original_bytes) before the result exceeds limit_of_growth(original_bytes).
  std::string apply(std::string_view text, size_t original_bytes) const;

 private:
  Replacement(Regex pattern, std::string content, std::string where)
      : pattern_(std::move(pattern)), content_(std::move(content)), where_(std::move(where)) {}
  Regex pattern_;
  std::string content_;
  std::string where_;
};

}  // namespace slimexx::text
