// Unicode normalization forms in time linear in the text but for the sort of its runs of marks.
#pragma once
#include <string>
#include <string_view>

namespace slimexx::text {

enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };

// True if `text` is surely in every form that keeps ASCII, or for NFC below U+0300.
bool is_surely_normal(std::string_view text, UnicodeForm form);

// `text` must be valid UTF-8.
std::string to_unicode_form(std::string_view text, UnicodeForm form);

std::string to_lower_unicode(std::string_view text);  // character by character
std::string remove_marks(std::string_view text);

}  // namespace slimexx::text
