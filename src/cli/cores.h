// How many threads a rank may use.
#pragma once
#include <cstdint>
#include <string>

#include "slimexx/dist/world.h"

namespace slimexx::cli {

// The cores this process may run on, divided by the ranks of this host that may run on any of them
// too: a launcher that binds ranks to cores has divided them already. Collective.
int cores_of_this_rank(dist::World& world);

// What to tell the user of ranks that a launcher has bound to one core each while most of the
// host's are idle; empty if there is nothing to tell. `cores` of this rank, `ranks` of this host.
std::string describe_narrow_binding(int cores, int64_t host_cores, int ranks);

}  // namespace slimexx::cli
