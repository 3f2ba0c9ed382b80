#include "slimexx/ops/context.h"

namespace slimexx::ops {

Context compute_context(tensor::Arena& arena, const dist::Groups& groups) {
  return {.stream = tensor::compute_stream(arena.device()), .arena = arena, .groups = groups};
}

Context planning_context(tensor::Arena& plan, const dist::Groups& groups, int64_t most_ep_rows) {
  return {.stream = tensor::planning_stream(plan.device()),
          .arena = plan,
          .groups = groups,
          .most_ep_rows = most_ep_rows};
}

}  // namespace slimexx::ops
