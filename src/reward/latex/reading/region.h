// Subsets of the real line: unions of intervals and points, canonical, with exact end points.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "reward/latex/identity.h"
#include "reward/latex/node.h"

namespace slimexx::reward::latex {

// `breaks` (increasing) split the line; in_break[k] tells whether break k belongs to the region,
// in_gap[k] whether the open piece before break k does; in_gap.back() is for the piece after the
// last break.
struct Region {
  std::vector<Ref> breaks;
  std::vector<bool> in_break;
  std::vector<bool> in_gap{false};
  std::string variable;  // "x" for "x < 5"; empty if none is named
};

// Converts intervals, unions, finite sets of real constants, inequalities in one variable, set
// builders and lists of inequalities ("or": union, "and": intersection). nullopt for anything else,
// or if the end points are not real constants with a certain order.
std::optional<Region> to_region(const Ref& node, Budget& budget);
bool equal_regions(const Region& a, const Region& b, Budget& budget);

}  // namespace slimexx::reward::latex
