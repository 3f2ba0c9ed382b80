// Characters that Unicode 15.0, 15.1 and 16.0 assigned or changed, such as CJK extensions H and I.
// The tokenizers library knows these characters; PCRE2 10.42 and utf8proc 2.8 (Unicode 14.0) do
// not. With newer libraries these ranges are redundant.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace slimexx::text {

// `group` is a general category ("L" holds "Lu", "Ll", ...), a property or a script.
std::string newer_characters(std::string_view group);  // ranges for a PCRE2 character class
bool is_newer_character(std::string_view group, uint32_t c);

}  // namespace slimexx::text
