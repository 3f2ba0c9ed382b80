// Python's view of characters: white space, case, printability, numbers in text.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace slimexx::text::jinja {

bool is_space(uint32_t code_point);           // str.isspace
bool is_line_end(uint32_t code_point);        // where str.splitlines splits
bool is_printable(uint32_t code_point);       // str.isprintable
bool is_word_character(uint32_t code_point);  // \w

size_t skip_space(std::string_view text, size_t from);
std::string_view strip_space_left(std::string_view text);
std::string_view strip_space_right(std::string_view text);
std::string_view first_character(std::string_view text);

std::string upper_case(std::string_view text);
std::string lower_case(std::string_view text);
std::string title_case(std::string_view text);       // str.title
std::string capitalize_case(std::string_view text);  // str.capitalize
std::string swap_case(std::string_view text);
enum class CharacterClass : uint8_t {
  kAlpha,
  kAlnum,
  kDecimal,
  kDigit,
  kNumeric,
  kLower,
  kUpper,
  kSpace
};
bool all_characters(std::string_view text, CharacterClass wanted);
bool is_title_case(std::string_view text);

// Byte offset of code point number `index`, which must not exceed the length.
size_t byte_offset(const StringObject& string, int64_t index);
int64_t code_points_before(std::string_view text, size_t offset);

int digit_value(char c);  // for 0-9a-zA-Z, otherwise 99
std::optional<Int> parse_python_int(std::string_view text, int base);
std::optional<double> parse_python_float(std::string_view text);

}  // namespace slimexx::text::jinja
