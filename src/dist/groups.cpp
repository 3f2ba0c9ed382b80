#include "slimexx/dist/groups.h"

namespace slimexx::dist {

const Groups& groups_of_one() {
  static Collective one;  // calls do not change its state
  static const Groups groups{one, one, one, one, one, one, one, one, one, one};
  return groups;
}

Groups data_parallel_groups(Collective& ranks) {
  Collective& one = groups_of_one().tp;
  return {ranks, one, one, one, ranks, one, one, ranks, ranks, ranks};
}

}  // namespace slimexx::dist
