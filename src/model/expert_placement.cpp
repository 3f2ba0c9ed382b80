#include "slimexx/model/expert_placement.h"

#include <algorithm>

namespace slimexx::model {

bool ExpertPlacement::is_legal() const {
  return num_copies >= std::max(num_experts, num_ranks) && num_copies <= num_experts * num_ranks;
}

dist::Range ExpertPlacement::held_by(int64_t rank) const {
  const int64_t each = num_copies / num_ranks, left = num_copies % num_ranks;
  const auto begin = [&](int64_t r) { return r * each + std::min(r, left); };
  return {begin(rank), begin(rank + 1)};
}

std::vector<int32_t> ExpertPlacement::copies_for(int64_t rank) const {
  std::vector<int32_t> copies;
  for (int64_t expert = 0; expert < num_experts; ++expert) {
    const int64_t of_expert = (num_copies - expert + num_experts - 1) / num_experts;
    copies.push_back(static_cast<int32_t>(expert + rank % of_expert * num_experts));
  }
  return copies;
}

}  // namespace slimexx::model
