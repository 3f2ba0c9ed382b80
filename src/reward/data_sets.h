// Graders for data sets that users name in place of a grader.
#pragma once
#include <string>
#include <string_view>

namespace slimexx::reward {

// "math" of "gsm8k" or "openai/gsm8k"; empty if the name is not known.
std::string grader_of_data_set(std::string_view name);

}  // namespace slimexx::reward
