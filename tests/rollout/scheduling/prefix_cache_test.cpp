#include "rollout/scheduling/prefix_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "slimexx/base/philox.h"

namespace slimexx::rollout {
namespace {

using Tokens = std::vector<int32_t>;

// Reference implementation: maps whole token sequences to entries.
struct PlainCache {
  std::map<Tokens, PageId> page_of;
  std::map<PageId, Tokens> tokens_of;

  int64_t num_children(const Tokens& prefix, size_t page_tokens) const {
    int64_t count = 0;
    for (const auto& [tokens, page] : page_of)
      count += tokens.size() == prefix.size() + page_tokens &&
               std::equal(prefix.begin(), prefix.end(), tokens.begin());
    return count;
  }
};

// Walks a random sequence down the cache, comparing each look-up; adds the first unknown page.
void walk_and_insert(PrefixCache& cache, PlainCache& plain, int64_t num_pages, size_t page_tokens,
                     PhiloxStream& random) {
  Tokens prefix;
  PageId parent = kNoPage;
  for (int depth = 0; depth < 5; ++depth) {
    Tokens page(page_tokens);
    for (int32_t& token : page) token = static_cast<int32_t>(random.next_below(2));
    prefix.insert(prefix.end(), page.begin(), page.end());
    const auto known = plain.page_of.find(prefix);
    const PageId found = cache.find(parent, page);
    ASSERT_EQ(found, known == plain.page_of.end() ? kNoPage : known->second) << "depth " << depth;
    if (found != kNoPage) {
      parent = found;
      continue;
    }
    const auto fresh = static_cast<PageId>(random.next_below(static_cast<uint64_t>(num_pages)));
    if (cache.contains(fresh)) return;
    cache.insert(fresh, parent, page);
    plain.page_of[prefix] = fresh;
    plain.tokens_of[fresh] = prefix;
    return;
  }
}

void erase_random_leaf(PrefixCache& cache, PlainCache& plain, int64_t num_pages, size_t page_tokens,
                       PhiloxStream& random) {
  const auto page = static_cast<PageId>(random.next_below(static_cast<uint64_t>(num_pages)));
  const auto at = plain.tokens_of.find(page);
  ASSERT_EQ(cache.contains(page), at != plain.tokens_of.end()) << "page " << page;
  if (at == plain.tokens_of.end()) return;
  const int64_t num_children = plain.num_children(at->second, page_tokens);
  ASSERT_EQ(cache.num_children(page), num_children) << "page " << page;
  if (num_children > 0) return;
  cache.erase(page);
  plain.page_of.erase(at->second);
  plain.tokens_of.erase(at);
}

TEST(PrefixCache, AgreesWithAMapOfWholePrefixes) {
  // Masks with few bits make hashes collide in nearly every look-up.
  for (const uint64_t hash_mask : {~uint64_t{0}, uint64_t{3}, uint64_t{0}}) {
    for (const size_t page_tokens : {1, 2, 3}) {
      SCOPED_TRACE(testing::Message() << "mask " << hash_mask << " page " << page_tokens);
      PhiloxStream random(7 + page_tokens, hash_mask);
      constexpr int64_t kNumPages = 40;
      PrefixCache cache(kNumPages, static_cast<int64_t>(page_tokens), hash_mask);
      PlainCache plain;
      size_t largest = 0;
      for (int step = 0; step < 4000; ++step) {
        if (random.next_below(3) > 0) {
          walk_and_insert(cache, plain, kNumPages, page_tokens, random);
        } else {
          erase_random_leaf(cache, plain, kNumPages, page_tokens, random);
        }
        if (HasFatalFailure()) return;
        ASSERT_EQ(cache.size(), static_cast<int64_t>(plain.page_of.size()));
        largest = std::max(largest, plain.page_of.size());
      }
      EXPECT_GE(largest, 5u);
    }
  }
}

TEST(PrefixCacheDeathTest, TheSamePageUnderAnotherParentIsAnotherEntry) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  PrefixCache cache(4, 2, 0);
  const Tokens a{1, 2}, b{3, 4}, c{5, 6};
  cache.insert(0, kNoPage, a);
  cache.insert(1, kNoPage, b);
  cache.insert(2, 0, c);
  EXPECT_EQ(cache.find(0, c), 2);
  EXPECT_EQ(cache.find(1, c), kNoPage);
  EXPECT_EQ(cache.find(kNoPage, c), kNoPage);
  EXPECT_DEATH(cache.erase(0), "is the prefix of 1 others");
}

}  // namespace
}  // namespace slimexx::rollout
