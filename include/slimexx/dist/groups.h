// The groups of ranks that one rank belongs to, for code that computes: Megatron's axes. Every
// reference is valid; where an axis has one rank it is a group of one, which sends nothing. Groups
// with the same ranks are one object. Owned by a ProcessGrid, or by groups_of_one.
#pragma once
#include "slimexx/dist/collective.h"

namespace slimexx::dist {

struct Groups {
  Collective& world;  // all ranks
  Collective& tp;     // tensor parallel, and sequence parallel
  Collective& cp;     // context parallel
  Collective& pp;     // pipeline stages, by stage
  Collective& dp;     // data parallel, of dense parameters
  Collective& ep;     // expert parallel
  Collective& etp;    // tensor parallel inside an expert
  Collective& edp;    // data parallel of expert parameters
};

// Where there is no grid: one rank in every group. Any thread.
const Groups& groups_of_one();

}  // namespace slimexx::dist
