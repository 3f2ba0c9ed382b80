// The letter that a response to a question of multiple choice settles on.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "reward/choice/option_words.h"

namespace slimexx::reward {

// By the words around the letters, else the last capital that stands alone.
Settled find_letter(std::string_view response, const std::vector<std::string>& valid_letters);

}  // namespace slimexx::reward
