// Oniguruma's dialect into PCRE2's, as far as tokenizers use it.
#include <fmt/core.h>

#include "slimexx/base/error.h"
#include "text/regex.h"

namespace slimexx::text {
namespace {

// White_Space. PCRE2's own \s also counts U+180E.
constexpr std::string_view kSpace =
    R"(\x{09}-\x{0d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNotSpace =
    R"(\x{00}-\x{08}\x{0e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff})"
    R"(\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
// Alphabetic, M, Nd, Pc, and the Latin-1 numbers that Oniguruma adds. PCRE2's own \w is L, N and
// the underscore.
constexpr std::string_view kWord =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";
constexpr std::string_view kHexDigit = "0-9A-Fa-f";

std::string word_members() {
  return fmt::format("{}{}{}{}", kWord, newer_characters("L"), newer_characters("M"),
                     newer_characters("Nd"));
}

class Rewriter {
 public:
  Rewriter(std::string_view pattern, const std::string& where) : in_(pattern), where_(where) {}

  std::string run() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\') {
        rewrite_escape();
      } else if (in_class_) {
        copy_in_class(c);
      } else if (c == '[') {
        open_class();
      } else {
        if (c == '(') check_group();
        out_ += c;
        ++at_;
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorCode::kInput,
                fmt::format("regular expression: {} at byte {} is not supported", what, at_),
                "write the pattern without it", where_);
  }

  void open_class() {
    in_class_ = true;
    out_ += '[';
    ++at_;
    if (at_ < in_.size() && in_[at_] == '^') {
      out_ += '^';
      ++at_;
    }
  }

  void copy_in_class(char c) {
    if (c == '[') {
      const size_t end = in_.find(":]", at_);
      if (in_.substr(at_, 2) != "[:" || end == std::string_view::npos) refuse("a class in a class");
      out_.append(in_.substr(at_, end + 2 - at_));
      at_ = end + 2;
      return;
    }
    if (in_.substr(at_, 2) == "&&") refuse("an intersection of classes");
    if (c == ']') in_class_ = false;
    out_ += c;
    ++at_;
  }

  // (?m) means "dot matches newline" in the one dialect and "multi-line anchors" in the other.
  void check_group() const {
    if (in_.substr(at_, 2) != "(?") return;
    for (size_t i = at_ + 2; i < in_.size(); ++i) {
      const char c = in_[i];
      if (c == 'm' || c == 's') refuse("the option (?m)");
      if (c != '-' && c != 'i' && c != 'x') return;
    }
  }

  void put_class(std::string_view members, bool negated) {
    if (in_class_) {
      if (negated) refuse("a negated class in a class");
      out_ += members;
    } else {
      out_ += fmt::format("[{}{}]", negated ? "^" : "", members);
    }
    at_ += 2;
  }

  void rewrite_escape() {
    if (at_ + 1 >= in_.size()) refuse("a trailing backslash");
    switch (in_[at_ + 1]) {
      case 'p':
        return rewrite_property();
      case 's':
        return put_class(kSpace, false);
      case 'S':
        return in_class_ ? put_class(kNotSpace, false) : put_class(kSpace, true);
      case 'w':
        return put_class(word_members(), false);
      case 'W':
        return put_class(word_members(), true);
      case 'h':
        return put_class(kHexDigit, false);
      case 'H':
        return put_class(kHexDigit, true);
      case 'u':
        return rewrite_code_point();
      default:
        out_.append(in_.substr(at_, 2));
        at_ += 2;
    }
  }

  void rewrite_property() {
    const size_t end = in_.find('}', at_);
    const bool braced = in_.substr(at_ + 2, 1) == "{" && end != std::string_view::npos;
    const std::string_view escape = in_.substr(at_, braced ? end + 1 - at_ : 2);
    const std::string_view more =
        braced ? newer_characters(in_.substr(at_ + 3, end - at_ - 3)) : std::string_view();
    if (more.empty() || in_class_) {
      out_.append(escape).append(more);
    } else {
      out_ += fmt::format("[{}{}]", escape, more);
    }
    at_ += escape.size();
  }

  void rewrite_code_point() {
    const std::string_view digits = in_.substr(at_ + 2, 4);
    if (digits.size() != 4 ||
        digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos) {
      refuse("\\u without four hexadecimal digits");
    }
    out_ += fmt::format("\\x{{{}}}", digits);
    at_ += 6;
  }

  std::string_view in_;
  const std::string& where_;
  std::string out_;
  size_t at_ = 0;
  bool in_class_ = false;
};

}  // namespace

std::string rewrite_regex(std::string_view pattern, const std::string& where) {
  return Rewriter(pattern, where).run();
}

}  // namespace slimexx::text
