// How many ranks a host has.
#pragma once
#include "slimexx/dist/world.h"

namespace slimexx::dist {

// The number of ranks on this host. Collective over all ranks.
inline int local_size(World& world) {
  return world.ranks().split(world.first_local_rank(), world.rank())->size();
}

}  // namespace slimexx::dist
