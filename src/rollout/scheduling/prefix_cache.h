// Finds the page that holds the keys and values of a full page of tokens after a known prefix.
//
// An entry is (parent page, tokens of this page) -> page. A parent is itself an entry, so by
// induction an entry stands for one exact token sequence from the start: hashes only choose the
// bucket, tokens and parent are compared. Each page has at most one entry, and page ids name
// entries.
//
// Invariant for the caller: a holder of an entry's page also holds its parent's page, and releases
// pages in reverse order. Then children become idle before their parents, and an entry is never
// erased while it has children.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "rollout/scheduling/page_pool.h"

namespace slimexx::rollout {

class PrefixCache {
 public:
  // `hash_mask` is for tests: a mask of few bits forces collisions.
  PrefixCache(int64_t num_pages, int64_t page_tokens, uint64_t hash_mask = ~uint64_t{0});

  // kNoPage if unknown. parent is kNoPage for the first page of a sequence.
  PageId find(PageId parent, std::span<const int32_t> tokens) const;
  // The entry must not exist yet, and `page` must have no entry.
  void insert(PageId page, PageId parent, std::span<const int32_t> tokens);
  void erase(PageId page);
  bool contains(PageId page) const { return entries_[static_cast<size_t>(page)].is_used; }
  int64_t num_children(PageId page) const {
    return entries_[static_cast<size_t>(page)].num_children;
  }
  int64_t size() const { return size_; }

 private:
  struct Entry {
    uint64_t hash = 0;  // chained: hash of the parent's hash and the tokens
    PageId parent = kNoPage;
    PageId next_in_bucket = kNoPage;
    int32_t num_children = 0;
    bool is_used = false;
  };
  uint64_t hash_of(PageId parent, std::span<const int32_t> tokens) const;
  PageId& bucket_of(uint64_t hash) { return buckets_[hash & (buckets_.size() - 1)]; }
  std::span<const int32_t> tokens_of(PageId page) const;

  int64_t page_tokens_;
  uint64_t hash_mask_;
  std::vector<Entry> entries_;   // indexed by page
  std::vector<int32_t> tokens_;  // [num_pages, page_tokens]
  std::vector<PageId> buckets_;  // size is a power of two
  int64_t size_ = 0;
};

}  // namespace slimexx::rollout
