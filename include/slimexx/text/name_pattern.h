// A regular expression that searches names of tensors.
#pragma once
#include <memory>
#include <string>

namespace slimexx::text {

class NamePattern {
 public:
  // PCRE2 syntax: Perl's and, as far as names need it, Python's. Throws Error(kUsage) at `key` if
  // the pattern does not compile.
  NamePattern(const std::string& pattern, const char* key);
  NamePattern(NamePattern&&) noexcept;
  NamePattern& operator=(NamePattern&&) noexcept;
  ~NamePattern();

  const std::string& text() const { return text_; }
  // Whether the pattern matches anywhere in the name. Bounded: throws Error(kUsage) if the pattern
  // backtracks far more than any name should require.
  bool is_found_in(const std::string& name) const;

 private:
  struct Code;
  std::string text_;
  const char* key_;
  std::unique_ptr<Code> code_;
};

}  // namespace slimexx::text
