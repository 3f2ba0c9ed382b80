// Unicode character classes as the published tokenizers define them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace slimexx::text {

bool is_white_space(uint32_t c);  // property White_Space
bool is_numeric(uint32_t c);      // Nd, Nl, No
bool is_punctuation(uint32_t c);  // P*, and every ASCII mark that is not a letter, digit or space
bool is_mark(uint32_t c);         // Mn, Mc, Me
bool is_word(uint32_t c);         // Alphabetic, M*, Nd, Pc, joiners
bool is_foldable(uint32_t c);     // non-ASCII characters that case folding may change or join

// Start of the character that ends at `end` (> 0) in valid UTF-8.
size_t previous_character(std::string_view text, size_t end);

}  // namespace slimexx::text
