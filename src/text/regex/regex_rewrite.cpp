// Translates Oniguruma's dialect to PCRE2's, as far as tokenizers use it.
#include <fmt/core.h>

#include <optional>
#include <vector>

#include "slimexx/base/error.h"
#include "slimexx/base/strings.h"
#include "text/regex/char_class.h"
#include "text/regex/regex.h"
#include "text/regex/regex_reader.h"

namespace slimexx::text {
namespace {

constexpr size_t kNone = std::string::npos;
// \R, written out, because PCRE2 assumes that \R and a dot never match the same character.
constexpr const char* kLineBreak = R"((?>\x{d}\x{a}|[\x{a}-\x{d}\x{85}\x{2028}\x{2029}]))";
// Pairs of letters that case folding also produces from a single ligature.
constexpr std::string_view kJoinedPairs[] = {"ss", "ff", "fi", "fl", "st"};

struct Options {
  bool ignore_case = false;
  bool extended = false;  // white space and comments are ignored
};

class Rewriter {
 public:
  Rewriter(std::string_view pattern, const std::string& where) : in_(pattern, where) {}

  std::string run() {
    while (!in_.done()) {
      rewrite_item();
      in_.check_size(out_.size());
    }
    close_implied();
    if (has_names_ && has_numbers_)
      in_.refuse("a reference to a group by number in a pattern with named groups");
    return std::move(out_);
  }

 private:
  struct Group {
    size_t begin = 0;  // offset in out_
    Options outside;
    bool implied = false;      // opened for the rest of the group after (?i)
    bool assertion = false;    // cannot be repeated
    bool look_behind = false;  // a look-behind, or inside one
    bool negative = false;
  };

  void rewrite_item();
  void rewrite_escape();
  void rewrite_quantifier();
  std::optional<std::string> take_interval();
  void put_quantifier(const std::string& quantifier);
  void put_atom(const std::string& text);
  void put_anchor(const std::string& text);
  void put_set(const CharSet& set);
  void put_literal(uint32_t c);
  void put_reference();
  void open_group();
  void open_options();
  void push_group(const std::string& opening, Group group);
  void close_group();
  void close_implied();

  RegexReader in_;
  std::string out_;
  std::vector<Group> groups_;
  Options options_;
  size_t atom_ = kNone;  // offset in out_ of the atom that a quantifier would repeat
  std::string repeat_;   // the quantifier that the atom already has
  char literal_ = '\0';  // the previous letter, if case is ignored
  bool has_names_ = false, has_numbers_ = false;
};

void Rewriter::rewrite_item() {
  const char c = in_.peek();
  if (options_.extended && std::string_view(" \t\n\r\f").find(c) != kNone) {
    in_.skip(1);
  } else if (options_.extended && c == '#') {
    in_.skip_past("\n");
  } else if (c == '\\') {
    rewrite_escape();
  } else if (in_.take("[")) {
    put_atom(in_.read_class(options_.ignore_case));
  } else if (c == '(') {
    open_group();
  } else if (c == ')') {
    close_group();
  } else if (in_.take(".")) {
    put_atom(".");
  } else if (c == '|' || c == '^' || c == '$') {
    in_.skip(1);
    put_anchor(std::string(1, c));
  } else if (c == '*' || c == '+' || c == '?' || c == '{') {
    rewrite_quantifier();
  } else {
    put_literal(in_.read_code_point());
  }
}

void Rewriter::rewrite_escape() {
  const char c = in_.peek(1);
  if (c >= '1' && c <= '9') return put_reference();
  if (c == 'k') in_.refuse("a back reference by a group's name");
  if (c == 'b' || c == 'B') {
    in_.skip(2);
    const std::string word = set_pattern(word_set(false));
    return put_anchor(fmt::format("(?(?<={0})(?{1}{0})|(?{2}{0}))", word, c == 'b' ? '!' : '=',
                                  c == 'b' ? '=' : '!'));
  }
  if (c != '\0' && std::string_view("AzZK").find(c) != kNone) {
    in_.skip(2);
    return put_anchor(fmt::format("\\{}", c));
  }
  if (c == 'R' || c == 'N') {
    in_.skip(2);
    return put_atom(c == 'N' ? "\\N" : kLineBreak);
  }
  if (const auto set = in_.read_set(false)) return put_set(*set);
  put_literal(in_.read_code_point());
}

void Rewriter::rewrite_quantifier() {
  const char c = in_.peek();
  if (c == '{') {
    const auto interval = take_interval();
    return interval ? put_quantifier(*interval) : put_literal(in_.read_code_point());
  }
  in_.skip(1);
  std::string quantifier(1, c);
  if (in_.peek() == '?' || in_.peek() == '+') {
    quantifier += in_.peek();
    in_.skip(1);
  }
  put_quantifier(quantifier);
}

// Reads {n} {n,} {,m} {n,m}, all except {n} optionally lazy with a trailing ?. Other braces are
// literal.
std::optional<std::string> Rewriter::take_interval() {
  size_t end = 1;
  std::string low, high;
  const auto read_number = [&](std::string& number) {
    for (; in_.peek(end) >= '0' && in_.peek(end) <= '9'; ++end) {
      if (number == "0") number.clear();
      number += in_.peek(end);
    }
  };
  read_number(low);
  const bool range = in_.peek(end) == ',';
  if (range) {
    ++end;
    read_number(high);
  }
  if (in_.peek(end) != '}' || (low.empty() && high.empty())) return std::nullopt;
  in_.skip(end + 1);
  if (low.empty()) low = "0";
  if (!range) return fmt::format("{{{}}}", low);
  return fmt::format("{{{},{}}}{}", low, high, in_.take("?") ? "?" : "");
}

void Rewriter::put_quantifier(const std::string& quantifier) {
  if (atom_ == kNone) in_.refuse("a repeat of nothing or of an anchor");
  // PCRE2 would read the second of two quantifiers as lazy or possessive, or refuse it, so wrap the
  // first in a group.
  if (!repeat_.empty()) {
    // Oniguruma repeats only the last character of (?:ab){1}+.
    if (repeat_.starts_with("{1}") || repeat_.starts_with("{1,1}")) in_.refuse("a repeat of {1}");
    out_.insert(atom_, "(?:");
    out_ += ')';
  }
  out_ += quantifier;
  repeat_ = quantifier;
  literal_ = '\0';
}

void Rewriter::put_atom(const std::string& text) {
  atom_ = out_.size();
  repeat_.clear();
  literal_ = '\0';
  out_ += text;
}

void Rewriter::put_anchor(const std::string& text) {
  put_atom(text);
  atom_ = kNone;
}

void Rewriter::put_set(const CharSet& set) {
  // Outside a class, Oniguruma does not apply ignored case to a property.
  const std::string pattern = set_pattern(set);
  put_atom(options_.ignore_case ? fmt::format("(?-i:{})", pattern) : pattern);
}

void Rewriter::put_literal(uint32_t c) {
  const char before = literal_;
  std::string text;
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  if (letter || c > 0x7F) {
    append_utf8(text, c);
  } else {
    text = fmt::format("\\x{{{:x}}}", c);
  }
  put_atom(text);
  if (!options_.ignore_case) return;
  if (is_foldable(c)) in_.refuse("a letter beyond ASCII, with case ignored,");
  if (!letter) return;
  literal_ = static_cast<char>(c | 0x20);
  for (const auto pair : kJoinedPairs) {
    if (pair[0] == before && pair[1] == literal_) {
      in_.refuse(fmt::format("\"{}\" without case", pair));
    }
  }
}

void Rewriter::put_reference() {
  const char digit = in_.peek(1);
  if (options_.ignore_case || (in_.peek(2) >= '0' && in_.peek(2) <= '9')) {
    in_.refuse("a back reference with two digits, or with case ignored,");
  }
  has_numbers_ = true;
  in_.skip(2);
  put_atom(fmt::format("\\g{{{}}}", digit));
}

void Rewriter::open_group() {
  if (in_.take("(?#")) {
    in_.take_until(')');
    return;
  }
  if (in_.starts_with("(*")) in_.refuse("(*");
  Group group;
  const Group* const outer = groups_.empty() ? nullptr : &groups_.back();
  const bool behind = outer != nullptr && outer->look_behind;
  group.look_behind = behind;
  group.negative = outer != nullptr && outer->negative;
  for (const std::string_view opening : {"(?:", "(?>"}) {
    if (in_.take(opening)) return push_group(std::string(opening), group);
  }
  for (const std::string_view opening : {"(?=", "(?!", "(?<=", "(?<!"}) {
    if (!in_.take(opening)) continue;
    if (behind) in_.refuse("an assertion in a look-behind");
    group.assertion = true;
    group.look_behind = opening[2] == '<';
    group.negative = opening.back() == '!';
    return push_group(std::string(opening), group);
  }
  if (behind && group.negative) in_.refuse("a group in a negative look-behind");
  if (in_.take("(?<")) {
    has_names_ = true;
    return push_group(fmt::format("(?<{}>", in_.take_until('>')), group);
  }
  if (in_.take("(?")) return open_options();
  in_.skip(1);
  push_group("(", group);
}

// (?i) applies to the end of the group, alternatives included; (?i:...) to its own group.
// Oniguruma's m is PCRE2's s: dots match newlines.
void Rewriter::open_options() {
  Options options = options_;
  std::string on, off;
  bool value = true;
  size_t letters = 0;
  for (; in_.peek() != ':' && in_.peek() != ')'; in_.skip(1), ++letters) {
    const char c = in_.peek();
    if (c == '-') {
      value = false;
    } else if (c == 'i' || c == 'm') {
      (value ? on : off) += c == 'm' ? 's' : c;
      if (c == 'i') options.ignore_case = value;
    } else if (c == 'x') {
      options.extended = value;
    } else {
      in_.refuse(fmt::format("the group (?{}", c == '\0' ? "" : std::string(1, c)));
    }
  }
  if (letters == 0) in_.refuse("the group (?)");
  Group group;
  if (!groups_.empty()) group = groups_.back();
  group.assertion = false;
  group.implied = in_.peek() == ')';
  in_.skip(1);
  push_group(fmt::format("(?{}{}{}:", on, off.empty() ? "" : "-", off), group);
  options_ = options;
}

void Rewriter::push_group(const std::string& opening, Group group) {
  const char literal = literal_;
  put_anchor(opening);
  literal_ = literal;  // (?:s)(?:s) counts as "ss"
  group.begin = out_.size() - opening.size();
  group.outside = options_;
  groups_.push_back(group);
}

void Rewriter::close_implied() {
  while (!groups_.empty() && groups_.back().implied) {
    options_ = groups_.back().outside;
    groups_.pop_back();
    out_ += ')';
  }
}

void Rewriter::close_group() {
  close_implied();
  if (groups_.empty()) in_.refuse("a ')' without its '('");
  const Group group = groups_.back();
  groups_.pop_back();
  in_.skip(1);
  out_ += ')';
  options_ = group.outside;
  atom_ = group.assertion ? kNone : group.begin;
  repeat_.clear();
}

}  // namespace

std::string rewrite_regex(std::string_view pattern, const std::string& where) {
  return Rewriter(pattern, where).run();
}

}  // namespace slimexx::text
