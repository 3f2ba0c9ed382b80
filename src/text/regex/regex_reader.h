// Reads a pattern in Oniguruma's syntax. Refuses, by name, everything that the rewriting does not
// support.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "text/regex/regex_set.h"

namespace slimexx::text {

class RegexReader {
 public:
  RegexReader(std::string_view pattern, const std::string& where) : in_(pattern), where_(where) {}

  bool done() const { return at_ >= in_.size(); }
  char peek(size_t ahead = 0) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }
  bool starts_with(std::string_view text) const { return in_.substr(at_).starts_with(text); }
  bool take(std::string_view text);  // if the text is next, moves past it and returns true
  void skip(size_t bytes) { at_ += bytes; }
  void skip_past(std::string_view text);  // to the end if the text is not found
  std::string_view take_until(char end);  // also moves past `end`; refuses a pattern without it

  uint32_t read_code_point();  // a character, or an escape that stands for one
  // Reads \d \D \w \W \s \S \h \H \p{..} \P{..}, if one of them is next.
  std::optional<CharSet> read_set(bool in_class);
  // Starts after the '['. With `ignore_case`, refuses characters that case folding would change.
  std::string read_class(bool ignore_case);

  [[noreturn]] void refuse(const std::string& what) const;
  // Bounds the size that a short pattern can grow to: each \b becomes some kilobytes.
  void check_size(size_t rewritten_bytes) const;

 private:
  uint32_t read_escape();
  uint32_t read_hexadecimal(size_t max_digits);
  CharSet read_property(bool in_class);
  void read_class_item(ClassPattern& out, bool ignore_case);
  void ignore_case_in(CharSet& set) const;

  std::string_view in_;
  const std::string& where_;
  size_t at_ = 0;
};

}  // namespace slimexx::text
