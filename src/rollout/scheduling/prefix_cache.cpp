#include "rollout/scheduling/prefix_cache.h"

#include <algorithm>
#include <bit>

#include "slimexx/base/check.h"

namespace slimexx::rollout {

PrefixCache::PrefixCache(int64_t num_pages, int64_t page_tokens, uint64_t hash_mask)
    : page_tokens_(page_tokens),
      hash_mask_(hash_mask),
      entries_(static_cast<size_t>(num_pages)),
      tokens_(static_cast<size_t>(num_pages * page_tokens)),
      buckets_(std::bit_ceil(static_cast<size_t>(2 * num_pages)), kNoPage) {}

uint64_t PrefixCache::hash_of(PageId parent, std::span<const int32_t> tokens) const {
  uint64_t hash =
      parent == kNoPage ? 0x9E3779B97F4A7C15u : entries_[static_cast<size_t>(parent)].hash;
  for (const int32_t token : tokens) {
    hash = (hash ^ static_cast<uint32_t>(token)) * 0xD6E8FEB86659FD93u;
    hash ^= hash >> 32;
  }
  return hash & hash_mask_;
}

std::span<const int32_t> PrefixCache::tokens_of(PageId page) const {
  return {tokens_.data() + page * page_tokens_, static_cast<size_t>(page_tokens_)};
}

PageId PrefixCache::find(PageId parent, std::span<const int32_t> tokens) const {
  const uint64_t hash = hash_of(parent, tokens);
  PageId page = buckets_[hash & (buckets_.size() - 1)];
  for (; page != kNoPage; page = entries_[static_cast<size_t>(page)].next_in_bucket) {
    const Entry& entry = entries_[static_cast<size_t>(page)];
    if (entry.hash == hash && entry.parent == parent && std::ranges::equal(tokens_of(page), tokens))
      return page;
  }
  return kNoPage;
}

void PrefixCache::insert(PageId page, PageId parent, std::span<const int32_t> tokens) {
  Entry& entry = entries_[static_cast<size_t>(page)];
  SLX_CHECK(!entry.is_used, "page {} already has an entry", page);
  SLX_CHECK_EQ(static_cast<int64_t>(tokens.size()), page_tokens_);
  entry = {.hash = hash_of(parent, tokens), .parent = parent, .is_used = true};
  PageId& head = bucket_of(entry.hash);
  entry.next_in_bucket = head;
  head = page;
  std::ranges::copy(tokens, tokens_.begin() + page * page_tokens_);
  if (parent != kNoPage) {
    SLX_CHECK(contains(parent), "page {}: its parent page {} has no entry", page, parent);
    ++entries_[static_cast<size_t>(parent)].num_children;
  }
  ++size_;
}

void PrefixCache::erase(PageId page) {
  Entry& entry = entries_[static_cast<size_t>(page)];
  SLX_CHECK(entry.is_used, "page {} has no entry", page);
  SLX_CHECK(entry.num_children == 0, "page {} is the prefix of {} others", page,
            entry.num_children);
  PageId* link = &bucket_of(entry.hash);
  while (*link != page) link = &entries_[static_cast<size_t>(*link)].next_in_bucket;
  *link = entry.next_in_bucket;
  if (entry.parent != kNoPage) --entries_[static_cast<size_t>(entry.parent)].num_children;
  entry = {};
  --size_;
}

}  // namespace slimexx::rollout
