// Graders for users who name a data set instead of a grader.
#pragma once
#include <string>
#include <string_view>

namespace slimexx::reward {

// The grader for a data set: "math" for "gsm8k" or "openai/gsm8k"; empty if the name is unknown.
std::string grader_of_data_set(std::string_view name);

}  // namespace slimexx::reward
