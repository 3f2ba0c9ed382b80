// The part of the `gpqa` grader that its vectors pin down.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace slimexx::reward {

// The letter that the response settles on, by the wording around it, else its last lone capital;
// empty if it names none of `valid_letters`.
std::string find_letter(std::string_view response, const std::vector<std::string>& valid_letters);

}  // namespace slimexx::reward
