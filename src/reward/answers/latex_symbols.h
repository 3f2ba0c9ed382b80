// LaTeX macros without operands as plain text.
#pragma once
#include <optional>
#include <string_view>

namespace slimexx::reward {

// "alpha" -> the letter, "cdot" -> "*", "sin" -> "sin", "quad" -> " "; null for other names.
std::optional<std::string_view> symbol_text(std::string_view name);

// "cal" letters stay plain; bold and blackboard letters are characters of their own, so that a
// vector \mathbf{x} is not the number x.
enum class MathAlphabet { kPlain, kBold, kBlackboard };
std::optional<MathAlphabet> alphabet_of(std::string_view name);  // of \mathbf, \mathrm, \text ...
std::string_view blackboard_letter(char letter);  // of those outside the alphabet's block; or empty

}  // namespace slimexx::reward
