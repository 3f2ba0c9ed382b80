// Characters that Unicode 15.0, 15.1 and 16.0 assigned or changed: the tokenizers library knows
// them, PCRE2 10.42 and utf8proc 2.8 (Unicode 14.0) do not. Chinese extensions H and I are among
// them. Newer libraries find nothing new here, since the ranges only repeat their own.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace slimexx::text {

// `group` is a general category ("L" holds "Lu", "Ll", ...), a property or a script.
std::string newer_characters(std::string_view group);  // ranges, to stand in a class of PCRE2
bool is_newer_character(std::string_view group, uint32_t c);

}  // namespace slimexx::text
