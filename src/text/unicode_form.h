// Unicode normalization forms. The time is linear in the text, except for sorting runs of marks.
#pragma once
#include <string>
#include <string_view>

namespace slimexx::text {

enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };

// True only if `text` is certainly in this form already: ASCII, or for NFC characters below U+0300.
bool is_surely_normal(std::string_view text, UnicodeForm form);

// `text` must be valid UTF-8.
std::string to_unicode_form(std::string_view text, UnicodeForm form);

std::string to_lower_unicode(std::string_view text);  // character by character
std::string remove_marks(std::string_view text);

}  // namespace slimexx::text
