#include "text/regex/regex_set.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>

#include "text/regex/newer_characters.h"

namespace slimexx::text {
namespace {

// White_Space. PCRE2's own \s also has U+180E.
constexpr std::string_view kSpace =
    R"(\x{09}-\x{0d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
// Alphabetic, M, Nd, Pc. PCRE2's own \w has L, N and the underscore.
constexpr std::string_view kWord =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";
constexpr std::string_view kLatin1Numbers = R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";

constexpr std::string_view kCategories[] = {"L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc",
                                            "Me", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Ps",
                                            "Pe", "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk", "So",
                                            "Z",  "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cs"};
constexpr std::string_view kCasedCategories[] = {"Lu", "Ll", "Lt", "M", "Mn"};

constexpr std::string_view kAliases[][2] = {{"letter", "l"},
                                            {"alphabetic", "alpha"},
                                            {"uppercase", "upper"},
                                            {"lowercase", "lower"},
                                            {"whitespace", "space"}};

// Scripts that grew after PCRE2's tables; other scripts are passed to PCRE2 unchanged.
constexpr std::string_view kGrownScripts[][2] = {{"Arabic", "arab"},
                                                 {"Balinese", "bali"},
                                                 {"Common", "zyyy"},
                                                 {"Cyrillic", "cyrl"},
                                                 {"Devanagari", "deva"},
                                                 {"Egyptian_Hieroglyphs", "egyp"},
                                                 {"Han", "hani"},
                                                 {"Hiragana", "hira"},
                                                 {"Kannada", "knda"},
                                                 {"Katakana", "kana"},
                                                 {"Khitan_Small_Script", "kits"},
                                                 {"Khojki", "khoj"},
                                                 {"Lao", "laoo"},
                                                 {"Latin", "latn"},
                                                 {"Myanmar", "mymr"}};

std::string category(std::string_view name) {
  return fmt::format("\\p{{{}}}{}", name, newer_characters(name));
}

std::string categories(std::initializer_list<std::string_view> names) {
  std::string out;
  for (const auto name : names) out += category(name);
  return out;
}

std::string alphabetic() {
  return "\\p{Alphabetic}" + newer_characters("L") + newer_characters("Alphabetic");
}

// All visible characters, and the format characters.
std::string graphic() { return categories({"L", "M", "N", "P", "S", "Cf", "Co"}); }

// Ignores letter case, spaces, hyphens and underscores in a property's name.
std::string plain_name(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == ' ' || c == '-' || c == '_') continue;
    out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return out;
}

std::optional<CharSet> category_set(const std::string& plain) {
  for (const auto name : kCategories) {
    if (plain_name(name) != plain) continue;
    CharSet set{category(name)};
    if (name == "L") set.folded = "\\x{345}";     // U+0345, a mark that folds to iota
    if (name == "Mn") set.except = "\\x{1171e}";  // U+1171E, in Mc since Unicode 15
    set.cased = std::find(std::begin(kCasedCategories), std::end(kCasedCategories), name) !=
                std::end(kCasedCategories);
    return set;
  }
  if (plain == "lc") return CharSet{categories({"Lu", "Ll", "Lt"}), "", false, true};
  // PCRE2 treats the newer characters as unassigned, so define these two categories as the
  // complement of all others.
  if (plain == "c") return CharSet{categories({"L", "M", "N", "P", "S", "Z"}), "", true};
  if (plain == "cn") {
    return CharSet{categories({"L", "M", "N", "P", "S", "Z", "Cc", "Cf", "Co", "Cs"}), "", true};
  }
  return std::nullopt;
}

std::optional<CharSet> script_set(std::string_view name, const std::string& plain) {
  const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
  if (plain == "unknown" || plain == "zzzz" ||
      !std::all_of(plain.begin(), plain.end(), is_letter)) {
    return std::nullopt;
  }
  for (const auto& [grown, short_name] : kGrownScripts) {
    if (plain != plain_name(grown) && plain != short_name) continue;
    return CharSet{fmt::format("\\p{{sc:{}}}{}", grown, newer_characters(grown)), "", false, true};
  }
  // Without "sc:", PCRE2 would include script extensions.
  return CharSet{fmt::format("\\p{{sc:{}}}", name), "", false, true};
}

}  // namespace

CharSet word_set(bool in_class) {
  return {fmt::format("{}{}{}{}{}", kWord, newer_characters("L"), newer_characters("M"),
                      newer_characters("Nd"), in_class ? "" : kLatin1Numbers)};
}

CharSet space_set() { return {std::string(kSpace)}; }

std::optional<CharSet> posix_set(std::string_view name) {
  if (name == "alpha") return CharSet{alphabetic()};
  if (name == "digit") return CharSet{category("Nd")};
  if (name == "alnum") return CharSet{alphabetic() + category("Nd")};
  if (name == "upper") return CharSet{"\\p{Uppercase}" + newer_characters("Lu"), "", false, true};
  if (name == "lower") {
    return CharSet{"\\p{Lowercase}" + newer_characters("Ll") + newer_characters("Lowercase"), "",
                   false, true};
  }
  if (name == "space") return space_set();
  if (name == "punct") return CharSet{categories({"P", "S"})};
  if (name == "word") return word_set(true);
  if (name == "graph") return CharSet{graphic()};
  if (name == "print") return CharSet{graphic() + "\\p{Zs}"};
  if (name == "cntrl") return CharSet{"\\p{Cc}"};
  if (name == "blank") return CharSet{"\\x{09}\\p{Zs}"};
  if (name == "xdigit") return CharSet{"0-9A-Fa-f"};
  if (name == "ascii") return CharSet{"\\x{00}-\\x{7f}", "", false, true};
  return std::nullopt;
}

std::optional<CharSet> property_set(std::string_view name, bool in_class) {
  std::string plain = plain_name(name);
  for (const auto& [alias, known] : kAliases) {
    if (plain == alias) plain = known;
  }
  if (plain == "any") return CharSet{"\\p{Any}"};
  if (plain == "punct") return CharSet{category("P")};
  if (plain == "word") return word_set(in_class);
  if (auto set = category_set(plain)) return set;
  if (auto set = posix_set(plain)) return set;
  return script_set(name, plain);
}

std::string set_pattern(const CharSet& set) {
  ClassPattern pattern;
  pattern.add(set);
  return pattern.pattern(false);
}

void ClassPattern::add(const CharSet& set) {
  bytes_ += set.members.size() + set.except.size();
  if (set.negated) {
    alternatives_.push_back("[^" + set.members + "]");
    members_ += set.except;
  } else if (!set.except.empty()) {
    alternatives_.push_back(fmt::format("(?![{}])[{}]", set.except, set.members));
  } else {
    members_ += set.members;
  }
}

void ClassPattern::add_range(uint32_t low, uint32_t high) {
  members_ += fmt::format("\\x{{{:x}}}", low);
  if (high != low) members_ += fmt::format("-\\x{{{:x}}}", high);
}

std::string ClassPattern::pattern(bool negated) const {
  if (alternatives_.empty()) return fmt::format("[{}{}]", negated ? "^" : "", members_);
  std::vector<std::string> parts = alternatives_;
  if (!members_.empty()) parts.push_back("[" + members_ + "]");
  if (parts.size() == 1 && parts[0].starts_with("[^")) {
    return negated ? "[" + parts[0].substr(2) : parts[0];
  }
  const std::string any = fmt::format("(?:{})", fmt::join(parts, "|"));
  return negated ? fmt::format("(?:(?!{})\\p{{Any}})", any) : any;
}

}  // namespace slimexx::text
