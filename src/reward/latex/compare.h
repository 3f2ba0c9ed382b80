// Are two parsed answers equal?
#pragma once
#include <string>

#include "reward/latex/identity.h"
#include "reward/latex/node.h"

namespace slimexx::reward::latex {

struct Verdict {
  bool equal = false;
  std::string reason;
};
// `converts_units` as in compare_answers.
Verdict compare_trees(const Ref& gold, const Ref& prediction, bool converts_units, Budget& budget);

}  // namespace slimexx::reward::latex
