#include "text/unicode_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "slimexx/base/check.h"
#include "slimexx/base/strings.h"
#include "text/regex/char_class.h"

namespace slimexx::text {
namespace {

constexpr int kMaxExpansion = 32;  // the longest expansion is that of U+FDFA, 18 characters

int combining_class(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

std::vector<utf8proc_int32_t> decompose(std::string_view text, bool compatibility) {
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE |
                                                      (compatibility ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const auto c = static_cast<utf8proc_int32_t>(next_code_point(text, at));
    if (c < 0x80) {
      out.push_back(c);
      continue;
    }
    utf8proc_int32_t parts[kMaxExpansion];
    int boundary = 0;
    const auto n = utf8proc_decompose_char(c, parts, kMaxExpansion, options, &boundary);
    SLX_CHECK(n >= 0 && n <= kMaxExpansion, "character U+{:x} cannot be decomposed", c);
    out.insert(out.end(), parts, parts + n);
  }
  return out;
}

// Canonical ordering (Unicode D109). utf8proc's own is quadratic in the length of a run of marks.
void order_marks(std::vector<utf8proc_int32_t>& text) {
  for (size_t begin = 0; begin < text.size();) {
    if (text[begin] < 0x300 || combining_class(text[begin]) == 0) {
      ++begin;
      continue;
    }
    size_t end = begin + 1;
    while (end < text.size() && combining_class(text[end]) != 0) ++end;
    std::stable_sort(text.begin() + static_cast<ptrdiff_t>(begin),
                     text.begin() + static_cast<ptrdiff_t>(end),
                     [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
}

}  // namespace

bool is_surely_normal(std::string_view text, UnicodeForm form) {
  // U+0300, the first character that NFC may change, begins with byte CC.
  const unsigned char limit = form == UnicodeForm::kNfc ? 0xCC : 0x80;
  return std::all_of(text.begin(), text.end(),
                     [&](char c) { return static_cast<unsigned char>(c) < limit; });
}

std::string to_unicode_form(std::string_view text, UnicodeForm form) {
  const bool compatibility = form == UnicodeForm::kNfkc || form == UnicodeForm::kNfkd;
  auto characters = decompose(text, compatibility);
  order_marks(characters);
  auto n = static_cast<utf8proc_ssize_t>(characters.size());
  if (form == UnicodeForm::kNfc || form == UnicodeForm::kNfkc) {
    n = utf8proc_normalize_utf32(
        characters.data(), n, static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    SLX_CHECK(n >= 0);
  }
  std::string out;
  out.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < n; ++i) append_utf8(out, static_cast<uint32_t>(characters[i]));
  return out;
}

std::string to_lower_unicode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const uint32_t c = next_code_point(text, at);
    if (c == 0x130) {  // the only character whose full lower case has two characters
      out += "i\xCC\x87";
    } else {
      append_utf8(out, static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    }
  }
  return out;
}

std::string remove_marks(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const uint32_t c = next_code_point(text, at);
    if (!is_mark(c)) append_utf8(out, c);
  }
  return out;
}

}  // namespace slimexx::text
