#include <algorithm>
#include <array>

#include "slimexx/dist/groups.h"
#include "slimexx/dist/peer_memory.h"

namespace slimexx::dist {
namespace {

// The groups of more than one rank, without duplicates.
std::vector<Collective*> list_groups(const Groups& groups) {
  std::vector<Collective*> listed;
  for (Collective* group : std::array{&groups.tp, &groups.cp, &groups.ep, &groups.etp})
    if (group->size() > 1 && std::ranges::find(listed, group) == listed.end())
      listed.push_back(group);
  return listed;
}

}  // namespace

PeerMemories make_peer_memories(Groups& groups, const tensor::Tensor& region) {
  PeerMemories memories;
  groups.ep_memory = nullptr;
  if (region.device().is_cpu()) return memories;
  for (Collective* group : list_groups(groups)) {
    auto memory = PeerMemory::make(*group, region);
    if (memory == nullptr) continue;
    if (group == &groups.ep) groups.ep_memory = memory.get();
    memories.push_back(std::move(memory));
  }
  return memories;
}

int64_t plan_peer_bytes(tensor::Device device, const Groups& groups) {
  return device.is_cpu() ? 0 : std::ssize(list_groups(groups)) * PeerMemory::kControlBytes;
}

void cancel(const PeerMemories& memories) noexcept {
  for (const auto& memory : memories) memory->cancel();
}

}  // namespace slimexx::dist
