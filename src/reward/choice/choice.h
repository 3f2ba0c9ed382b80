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

// nullopt for a bare letter, and for a text with several options. `source` must be clean
// (clean_source).
std::optional<Choice> read_choice(std::string_view source);

}  // namespace slimexx::reward
