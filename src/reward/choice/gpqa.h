// The letter that a response to a multiple-choice question settles on.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "reward/choice/option_words.h"

namespace slimexx::reward {

// Uses the words around the letters; otherwise the last capital letter that stands alone.
Settled find_letter(std::string_view response, const std::vector<std::string>& valid_letters);

}  // namespace slimexx::reward
