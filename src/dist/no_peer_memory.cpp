#include "slimexx/dist/peer_memory.h"

namespace slimexx::dist {

std::unique_ptr<PeerMemory> PeerMemory::make(Collective&, const tensor::Tensor&) { return nullptr; }
PeerMemory::~PeerMemory() = default;
int64_t PeerMemory::place_of(const tensor::Tensor&) const { return 0; }
void PeerMemory::cancel() noexcept {}
void PeerMemory::meet() const {}

}  // namespace slimexx::dist
