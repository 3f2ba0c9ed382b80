// Regular expressions of tokenizer.json. They are written for Oniguruma. Here they run on PCRE2's
// JIT, after the escapes that differ are rewritten. Bounded: a pattern that would search for
// minutes ends in an Error.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace slimexx::text {

struct TextRange {
  size_t begin, end;
};

// Translates a pattern to PCRE2's dialect. Throws Error(kInput) if that is not possible.
std::string rewrite_regex(std::string_view pattern, const std::string& where);

class Regex {
 public:
  // Throws Error(kInput) if the pattern does not compile.
  static Regex compile(const std::string& pattern, const std::string& where);
  static Regex literal(const std::string& text, const std::string& where);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // Appends the matches in `subject` (valid UTF-8), left to right. Skips an empty match directly
  // after the previous match. Throws Error(kInput) if the search takes too long.
  void find_all(std::string_view subject, std::vector<TextRange>& matches) const;

 private:
  struct Code;
  explicit Regex(std::unique_ptr<Code> code);
  static Regex build(const std::string& shown, const std::string& pattern, unsigned options,
                     const std::string& where);
  std::unique_ptr<Code> code_;
};

}  // namespace slimexx::text
