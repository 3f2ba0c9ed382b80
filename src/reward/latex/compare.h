// Compares two parsed answers.
#pragma once
#include <string>

#include "reward/graders.h"
#include "reward/latex/identity.h"
#include "reward/latex/node.h"

namespace slimexx::reward::latex {

struct Verdict {
  bool equal = false;
  std::string reason;
};
Verdict compare_trees(const Ref& gold, const Ref& prediction, const EqualityRules& rules,
                      Budget& budget);

}  // namespace slimexx::reward::latex
