// The groups that one rank belongs to, for code that computes: Megatron's axes. All references are
// valid; an axis of size 1 is a group of one rank, which sends nothing. Groups with the same ranks
// are one object. A ProcessGrid owns the groups, except those of groups_of_one.
#pragma once
#include "slimexx/dist/collective.h"

namespace slimexx::dist {

class PeerMemory;

struct Groups {
  Collective& world;     // all ranks
  Collective& tp;        // tensor parallel and sequence parallel
  Collective& cp;        // context parallel
  Collective& pp;        // pipeline stages, by stage
  Collective& dp;        // data parallel
  Collective& ep;        // expert parallel
  Collective& etp;       // tensor parallel inside an expert
  Collective& edp;       // data parallel of expert parameters: sums their gradients
  Collective& dp_cp;     // dp and cp together: sums gradients of dense parameters
  Collective& tp_dp_cp;  // a pipeline stage: sums gradients of parameters that tp replicates
  // Peer memory of ep, if its ranks can access each other's memory and make_peer_memories was
  // called; otherwise null.
  PeerMemory* ep_memory = nullptr;
};

// For code without a grid: one rank in every group. Any thread.
const Groups& groups_of_one();

}  // namespace slimexx::dist
