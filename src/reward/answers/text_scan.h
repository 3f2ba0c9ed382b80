// Scans text that a model wrote: linear time, no regular expressions, any bytes. Text is UTF-8; a
// byte that starts no valid sequence counts as one character.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "slimexx/reward/rewards.h"

namespace slimexx::reward {

// Bytes of the character at `position` (< text.size()): 1 to 4.
size_t char_length(std::string_view text, size_t position);
// The code point at `position`; U+FFFD for a byte that starts no valid sequence.
uint32_t char_at(std::string_view text, size_t position);
// The byte position of the character that ends before `position` (> 0).
size_t previous_char(std::string_view text, size_t position);

bool is_space(uint32_t code_point);  // Unicode white space
bool is_word(uint32_t code_point);   // letter, number or underscore
bool is_digit(char c);

std::string_view trim_space(std::string_view text);
size_t skip_space(std::string_view text, size_t position);
std::string lower_text(
    std::string_view text);  // character by character, as simple case mapping does
// The last `count` characters.
std::string_view last_chars(std::string_view text, size_t count);

void replace_all(std::string& text, std::string_view from, std::string_view to);
// Searches from `begin` on, in linear time for any input.
size_t find_text(std::string_view text, std::string_view part, size_t begin);
bool contains(std::string_view text, std::string_view part);  // also linear
// Whether `word` (lower-case ASCII) is at `position`, ignoring case.
bool matches_word(std::string_view text, size_t position, std::string_view word);

// The text after the last "</think>"; the whole text if there is none.
std::string_view after_reasoning(std::string_view response);

// Whether the response opens <think> and never closes it, so that it has no answer.
bool is_unfinished_thought(std::string_view response);

// Gets the content of the last \boxed{...}; false if that box has no brace directly after it or is
// not closed, even if an earlier box is closed.
const char* const kBoxed = "\\boxed";
bool read_final_box(std::string_view text, std::string& content);

// A key of the prompt's row, or of its object "metadata"; null if both lack it.
const Json* find_metadata(const RewardInput& input, const std::string& key);

// At most `limit` bytes of `text`, for reasons and errors; marks a cut.
std::string shorten(std::string_view text, size_t limit = 80);

}  // namespace slimexx::reward
