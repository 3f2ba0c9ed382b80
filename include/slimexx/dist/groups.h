// The groups of ranks that one rank belongs to, for code that computes: Megatron's axes. Every
// reference is valid; where an axis has one rank it is a group of one, which sends nothing. Groups
// with the same ranks are one object. Owned by a ProcessGrid, or as said below.
#pragma once
#include "slimexx/dist/collective.h"

namespace slimexx::dist {

class PeerMemory;

struct Groups {
  Collective& world;     // all ranks
  Collective& tp;        // tensor parallel, and sequence parallel
  Collective& cp;        // context parallel
  Collective& pp;        // pipeline stages, by stage
  Collective& dp;        // data parallel
  Collective& ep;        // expert parallel
  Collective& etp;       // tensor parallel inside an expert
  Collective& edp;       // data parallel of expert parameters: sums their gradients
  Collective& dp_cp;     // dp and cp together: sums gradients of dense parameters
  Collective& tp_dp_cp;  // a pipeline stage: sums gradients of what its tp ranks hold alike
  // Of ep, where its ranks reach each other's memory and somebody has made it; else null.
  PeerMemory* ep_memory = nullptr;
};

// Where there is no grid: one rank in every group. Any thread.
const Groups& groups_of_one();

// A grid of data parallelism alone: `ranks` are the world and the groups that sum gradients, the
// others groups of one.
Groups data_parallel_groups(Collective& ranks);

}  // namespace slimexx::dist
