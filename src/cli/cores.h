// The number of threads for a rank.
#pragma once
#include <cstdint>
#include <string>

#include "slimexx/dist/world.h"

namespace slimexx::cli {

// The number of cores in this process's affinity mask, divided by the number of ranks on this host
// with overlapping masks. If the launcher binds ranks to separate cores, nothing is divided.
// Collective.
int cores_of_this_rank(dist::World& world);

// A warning if the launcher binds each rank to one core while most of the host's cores are idle;
// otherwise empty. `cores` are those of this rank, `ranks` is the number of ranks on this host.
std::string describe_narrow_binding(int cores, int64_t host_cores, int ranks);

}  // namespace slimexx::cli
