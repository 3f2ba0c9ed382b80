// Groups of data parallelism only.
#pragma once
#include "slimexx/dist/groups.h"

namespace slimexx::dist {

// `ranks` serves as the world, dp, edp and the combined groups; all other groups have one rank.
inline Groups data_parallel_groups(Collective& ranks) {
  Collective& one = groups_of_one().tp;
  return {ranks, one, one, one, ranks, one, one, ranks, ranks, ranks};
}

}  // namespace slimexx::dist
