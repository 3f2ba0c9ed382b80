// A regular expression that is looked for in names of tensors.
#pragma once
#include <memory>
#include <string>

namespace slimexx::text {

class NamePattern {
 public:
  // In the syntax of PCRE2, which is Perl's and, for what names need, Python's.
  // Throws Error(kUsage) at `key` for a pattern that does not compile.
  NamePattern(const std::string& pattern, const char* key);
  NamePattern(NamePattern&&) noexcept;
  NamePattern& operator=(NamePattern&&) noexcept;
  ~NamePattern();

  const std::string& text() const { return text_; }
  // Whether it is found anywhere in the name. Bounded: throws Error(kUsage) for a pattern that
  // backtracks more than names give reason for.
  bool is_found_in(const std::string& name) const;

 private:
  struct Code;
  std::string text_;
  const char* key_;
  std::unique_ptr<Code> code_;
};

}  // namespace slimexx::text
