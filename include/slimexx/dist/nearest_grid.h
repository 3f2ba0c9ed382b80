// Finds valid grid sizes near invalid ones: the hint of the error message.
#pragma once
#include <functional>
#include <string>

#include "slimexx/dist/process_grid.h"

namespace slimexx::dist {

// Whether sizes satisfy a further constraint, such as the model's.
using GridRule = std::function<bool(const GridSizes&)>;

struct GridAdvice {
  std::string hint;  // "set it to 2 or 4, or use 12 or 24 ranks"
  std::string key;   // the key that "it" stands for, or the first key of the hint
};

// Suggests changes to `wanted`, which does not divide the ranks or breaks the rule: as few sizes as
// possible, each changed as little as possible, so that the result divides the ranks and obeys the
// rule. Other numbers of ranks are suggested only if `wanted` itself obeys the rule. If no sizes
// obey the rule, the rule is ignored. An etp equal to tp counts as not set and follows tp.
GridAdvice advise_grid(int world_size, const GridSizes& wanted, const GridRule& rule = {});

}  // namespace slimexx::dist
