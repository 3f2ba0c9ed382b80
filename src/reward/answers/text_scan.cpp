#include "reward/answers/text_scan.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "slimexx/base/strings.h"

namespace slimexx::reward {
namespace {

// Like utf8proc_iterate: the number of bytes used, negative for invalid UTF-8.
int decode(std::string_view text, size_t position, int32_t& code_point) {
  const size_t left = std::min<size_t>(text.size() - position, 4);
  return static_cast<int>(
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data() + position),
                       static_cast<utf8proc_ssize_t>(left), &code_point));
}

}  // namespace

size_t char_length(std::string_view text, size_t position) {
  if (static_cast<unsigned char>(text[position]) < 0x80) return 1;
  int32_t code_point = 0;
  const int used = decode(text, position, code_point);
  return used > 0 ? static_cast<size_t>(used) : 1;
}

uint32_t char_at(std::string_view text, size_t position) {
  const auto first = static_cast<unsigned char>(text[position]);
  if (first < 0x80) return first;
  int32_t code_point = 0;
  return decode(text, position, code_point) > 0 ? static_cast<uint32_t>(code_point) : 0xFFFD;
}

size_t previous_char(std::string_view text, size_t position) {
  for (size_t back = 2; back <= 4 && back <= position; ++back) {
    if (static_cast<unsigned char>(text[position - 1]) < 0x80) break;
    if (char_length(text, position - back) == back) return position - back;
  }
  return position - 1;
}

bool is_space(uint32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_word(uint32_t c) {
  if (c < 0x80) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
  }
  const utf8proc_category_t category = utf8proc_category(static_cast<int32_t>(c));
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) ||
         (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO);
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

size_t skip_space(std::string_view text, size_t position) {
  while (position < text.size() && is_space(char_at(text, position))) {
    position += char_length(text, position);
  }
  return position;
}

std::string_view trim_space(std::string_view text) {
  text.remove_prefix(skip_space(text, 0));
  while (!text.empty()) {
    const size_t last = previous_char(text, text.size());
    if (!is_space(char_at(text, last))) break;
    text = text.substr(0, last);
  }
  return text;
}

std::string lower_text(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const size_t length = char_length(text, i);
    const uint32_t c = char_at(text, i);
    if (c < 0x80) {
      out += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    } else if (length == 1) {
      out += text[i];
    } else {
      append_utf8(out, static_cast<uint32_t>(utf8proc_tolower(static_cast<int32_t>(c))));
    }
    i += length;
  }
  return out;
}

std::string_view last_chars(std::string_view text, size_t count) {
  size_t begin = text.size();
  while (begin > 0 && count-- > 0) begin = previous_char(text, begin);
  return text.substr(begin);
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  size_t found = text.find(from);
  if (found == std::string::npos) return;
  std::string out;
  out.reserve(text.size());
  size_t begin = 0;
  for (; found != std::string::npos; found = text.find(from, begin)) {
    out.append(text, begin, found - begin).append(to);
    begin = found + from.size();
  }
  text = out.append(text, begin);
}

size_t find_text(std::string_view text, std::string_view part, size_t begin) {
  // glibc's memmem is a two-way search: linear, where std::string::find is quadratic at worst.
  text.remove_prefix(begin);
  const void* found = memmem(text.data(), text.size(), part.data(), part.size());
  if (found == nullptr) return std::string_view::npos;
  return begin + static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

bool contains(std::string_view text, std::string_view part) {
  return find_text(text, part, 0) != std::string_view::npos;
}

bool matches_word(std::string_view text, size_t position, std::string_view word) {
  if (text.size() < position || text.size() - position < word.size()) return false;
  for (size_t i = 0; i < word.size(); ++i) {
    const char c = text[position + i];
    if ((c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c) != word[i]) return false;
  }
  return true;
}

std::string_view after_reasoning(std::string_view response) {
  constexpr std::string_view kEnd = "</think>";
  const size_t end = response.rfind(kEnd);
  return end == std::string_view::npos ? response : response.substr(end + kEnd.size());
}

bool is_unfinished_thought(std::string_view response) {
  const size_t open = response.rfind("<think>");
  if (open == std::string_view::npos) return false;
  return response.find("</think>", open) == std::string_view::npos;
}

bool read_final_box(std::string_view text, std::string& content) {
  const size_t start = text.rfind(kBoxed);
  if (start == std::string_view::npos) return false;
  const size_t open = start + std::strlen(kBoxed);
  if (open >= text.size() || text[open] != '{') return false;
  int64_t depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;  // \{ and \} belong to the answer
    } else if (text[i] == '{') {
      ++depth;
    } else if (text[i] == '}' && --depth == 0) {
      content = text.substr(open + 1, i - open - 1);
      return true;
    }
  }
  return false;
}

const Json* find_metadata(const RewardInput& input, const std::string& key) {
  if (!input.metadata || !input.metadata->is_object()) return nullptr;
  if (const auto it = input.metadata->find(key); it != input.metadata->end()) return &*it;
  const auto inner = input.metadata->find("metadata");
  if (inner == input.metadata->end() || !inner->is_object()) return nullptr;
  const auto it = inner->find(key);
  return it == inner->end() ? nullptr : &*it;
}

std::string shorten(std::string_view text, size_t limit) {
  if (text.size() <= limit) return replace_invalid_utf8(text);
  size_t end = 0;
  while (end < limit) {
    const size_t length = char_length(text, end);
    if (end + length > limit) break;
    end += length;
  }
  return replace_invalid_utf8(text.substr(0, end)) + "...";
}

}  // namespace slimexx::reward
