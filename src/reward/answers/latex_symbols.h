// LaTeX macros without operands as plain text.
#pragma once
#include <optional>
#include <string_view>

namespace slimexx::reward {

// "alpha" -> the letter, "cdot" -> "*", "sin" -> "sin", "quad" -> " "; nullopt for other names.
std::optional<std::string_view> symbol_text(std::string_view name);

// "cal" letters stay plain; bold and blackboard letters become different characters, so that a
// vector \mathbf{x} differs from the number x.
enum class MathAlphabet { kPlain, kBold, kBlackboard };
std::optional<MathAlphabet> alphabet_of(std::string_view name);  // of \mathbf, \mathrm, \text ...
std::string_view blackboard_letter(char letter);  // for letters outside the Unicode block of
                                                  // double-struck letters; otherwise empty

}  // namespace slimexx::reward
