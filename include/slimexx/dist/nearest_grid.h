// Sizes of a grid near those that do not fit: what a refusal of a grid tells the user to set.
#pragma once
#include <functional>
#include <string>

#include "slimexx/dist/process_grid.h"

namespace slimexx::dist {

// Whether sizes suit something besides the number of ranks, such as a model.
using GridRule = std::function<bool(const GridSizes&)>;

struct GridAdvice {
  std::string hint;  // "set it to 2 or 4, or use 12 or 24 ranks"
  std::string key;   // that "it" means, or the first one of the hint
};

// What to change of `wanted`, which does not divide the ranks or breaks the rule: as few sizes as
// possible, each as little as possible, to sizes that do both. Numbers of ranks are named where the
// sizes suit the rule as they are. Where no sizes suit the rule, it is left out. An etp that equals
// tp is taken to be left out: it changes with tp.
GridAdvice advise_grid(int world_size, const GridSizes& wanted, const GridRule& rule = {});

}  // namespace slimexx::dist
