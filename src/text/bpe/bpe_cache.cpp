#include "text/bpe/bpe_cache.h"

#include <algorithm>
#include <cstring>

namespace slimexx::text {

WordCache& WordCache::of_this_thread() {
  thread_local WordCache cache;
  return cache;
}

WordCache::Slot& WordCache::find(std::string_view word, uint32_t owner, bool& hit) {
  std::array<uint64_t, 3> key{};
  std::memcpy(key.data(), word.data(), word.size());
  uint64_t hash = (key[0] ^ word.size()) * 0x9E3779B97F4A7C15u;
  hash = (hash ^ hash >> 32 ^ key[1]) * 0xC2B2AE3D27D4EB4Fu;
  hash = (hash ^ hash >> 29 ^ key[2]) * 0x9E3779B97F4A7C15u;
  Slot& slot = slots_[hash >> 40 & (kSlots - 1)];
  hit = slot.owner == owner && slot.bytes == word.size() && slot.word == key;
  if (!hit) {
    slot.owner = 0;
    slot.word = key;
    slot.bytes = static_cast<uint8_t>(word.size());
  }
  return slot;
}

void WordCache::store(Slot& slot, uint32_t owner, const TokenId* ids, size_t count) {
  if (count > kMaxIds) return;
  std::copy(ids, ids + count, slot.ids.begin());
  slot.count = static_cast<uint8_t>(count);
  slot.owner = owner;
}

}  // namespace slimexx::text
