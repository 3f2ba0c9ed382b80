// Assigns experts to the ranks of an expert-parallel group. Loading, hand-over and dispatch all use
// this placement.
//
// Physical experts are numbered consecutively: number c is a copy of expert c % E. The first E
// copies are one of each expert; the redundant copies follow, from expert 0 on (SGLang's trivial
// placement). Ranks hold consecutive copies, split evenly; if the number of ranks does not divide
// them, the first ranks hold one copy more.
//
//   E 5, 7 copies, 3 ranks     copy     0 1 2 | 3 4 | 5 6
//                              expert   0 1 2 | 3 4 | 0 1
//
// A rank sends the rows of an expert to copy number rank % (copies of the expert). Copies have the
// same bytes, so that the choice changes no bit.
#pragma once
#include <cstdint>
#include <vector>

#include "slimexx/dist/ranges.h"

namespace slimexx::model {

struct ExpertPlacement {
  int64_t num_experts = 0, num_copies = 0, num_ranks = 1;

  // Every rank holds at least one copy, and no rank holds an expert twice.
  bool is_legal() const;
  bool has_redundant() const { return num_copies > num_experts; }
  int64_t expert_of(int64_t copy) const { return copy % num_experts; }
  dist::Range held_by(int64_t rank) const;  // copies
  int64_t most_held() const { return held_by(0).size(); }
  // By expert: the copy to which a rank sends the expert's rows.
  std::vector<int32_t> copies_for(int64_t rank) const;
};

}  // namespace slimexx::model
