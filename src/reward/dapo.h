// The parts of the `dapo` grader that its test vectors check.
#pragma once
#include <string>
#include <string_view>

namespace slimexx::reward {

// The normal form of a final answer, without words, units and LaTeX wrapping.
std::string dapo_form(std::string_view answer);

// The normal form of the last "Answer: ..." in the last 300 characters; "[INVALID]" if there is
// none.
std::string dapo_prediction(std::string_view response);

}  // namespace slimexx::reward
