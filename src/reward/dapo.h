// The parts of the `dapo` grader that its vectors pin down.
#pragma once
#include <string>
#include <string_view>

namespace slimexx::reward {

// The normal form of a final answer: words, units and LaTeX wrapping dropped.
std::string dapo_form(std::string_view answer);

// The normal form of the last "Answer: ..." in the last 300 characters, else "[INVALID]".
std::string dapo_prediction(std::string_view response);

}  // namespace slimexx::reward
