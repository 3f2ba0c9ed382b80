// Sets of characters as Oniguruma defines them, in PCRE2's syntax.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace slimexx::text {

struct CharSet {
  std::string members = {};  // as they stand in a class of PCRE2
  std::string except = {};   // of the members, those that do not belong to the set
  bool negated = false;
  bool cased = false;       // holds letters without their other cases
  std::string folded = {};  // what ignoring case adds to the members in a class
};

CharSet word_set(bool in_class);  // \w; [\w] lacks six numbers of Latin-1
CharSet space_set();              // \s
// \p{name} and [[:name:]]. Nothing for a name that Oniguruma or this program does not know.
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
  std::vector<std::string> alternatives_;  // what cannot stand among the members of a class
};

}  // namespace slimexx::text
