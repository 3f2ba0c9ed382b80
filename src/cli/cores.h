// How many threads a rank may use.
#pragma once
#include "slimexx/dist/world.h"

namespace slimexx::cli {

// The cores this process may run on, divided by the ranks of this host that may run on any of them
// too: a launcher that binds ranks to cores has divided them already. Collective.
int cores_of_this_rank(dist::World& world);

}  // namespace slimexx::cli
