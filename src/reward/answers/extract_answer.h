// The parts of extract_answer that `math` and its tests use on their own.
#pragma once
#include <string>
#include <string_view>

#include "reward/graders.h"

namespace slimexx::reward {

// The text after the last thought (</think>), up to a chat marker such as <|im_end|> (a marker at
// the start does not count). Empty if a thought is never closed.
std::string_view final_part(std::string_view response);

// The boxes of a reference answer, joined ("\boxed{1} and \boxed{2}" is a list), or the whole text
// if there is no box. An unclosed box counts: references are short and not truncated.
std::string read_label(std::string_view label);

}  // namespace slimexx::reward
