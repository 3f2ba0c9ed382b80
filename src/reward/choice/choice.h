// An option of a multiple choice as an answer: "(D) Alina", "D. Alina", "\textbf{(C)}\ 12".
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace slimexx::reward {

struct Choice {
  char letter = 0;
  std::string text;  // empty: "Option D" alone
};

// Null for a bare letter, and for a text of several options. `source` is clean (clean_source).
std::optional<Choice> read_choice(std::string_view source);

}  // namespace slimexx::reward
