// Converts PeerMemory to the kernels' argument. Only in builds with CUDA.
#pragma once
#include "slimexx/dist/peer_memory.h"
#include "slimexx/kernels/peers.h"

namespace slimexx::dist {

inline kernels::PeerRegions regions_of(const PeerMemory& memory) {
  kernels::PeerRegions ranks;
  for (size_t rank = 0; rank < memory.regions().size(); ++rank) {
    ranks.control[rank] = memory.controls()[rank];
    ranks.region[rank] = memory.regions()[rank];
  }
  ranks.rank = memory.rank();
  ranks.size = memory.size();
  ranks.cancelled = memory.cancelled();
  ranks.waits = memory.kernels_wait();
  return ranks;
}

}  // namespace slimexx::dist
