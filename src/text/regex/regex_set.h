// Sets of characters as Oniguruma defines them, in PCRE2's syntax.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace slimexx::text {

struct CharSet {
  std::string members = {};  // in the syntax of a PCRE2 class
  std::string except = {};   // characters of `members` that do not belong to the set
  bool negated = false;
  bool cased = false;       // has letters without their other cases
  std::string folded = {};  // added to the members of a class if case is ignored
};

CharSet word_set(bool in_class);  // \w; inside a class it lacks six numbers of Latin-1
CharSet space_set();              // \s
// \p{name} and [[:name:]]. nullopt if Oniguruma or this program does not know the name.
std::optional<CharSet> property_set(std::string_view name, bool in_class);
std::optional<CharSet> posix_set(std::string_view name);

// Matches one character of the set.
std::string set_pattern(const CharSet& set);

// The union of sets and ranges.
class ClassPattern {
 public:
  void add(const CharSet& set);
  void add_range(uint32_t low, uint32_t high);
  std::string pattern(bool negated) const;
  size_t bytes() const { return bytes_; }

 private:
  std::string members_;
  size_t bytes_ = 0;
  std::vector<std::string> alternatives_;  // sets that cannot be members of a class
};

}  // namespace slimexx::text
