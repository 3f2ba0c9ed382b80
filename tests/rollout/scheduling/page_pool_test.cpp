#include "rollout/scheduling/page_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <vector>

#include "slimexx/base/philox.h"

namespace slimexx::rollout {
namespace {

// A simple reference implementation of the pool.
struct PlainPool {
  std::map<PageId, int> holders = {};
  std::deque<PageId> idle = {};  // oldest first
  int64_t num_pages = 0;
};

void expect_equal(const PagePool& pool, const PlainPool& plain, int step) {
  ASSERT_EQ(pool.num_held(), static_cast<int64_t>(plain.holders.size())) << "step " << step;
  ASSERT_EQ(pool.num_idle(), static_cast<int64_t>(plain.idle.size())) << "step " << step;
  ASSERT_EQ(pool.num_free() + pool.num_idle() + pool.num_held(), plain.num_pages);
  ASSERT_EQ(pool.oldest_idle(), plain.idle.empty() ? kNoPage : plain.idle.front())
      << "step " << step;
  for (PageId page = 0; page < plain.num_pages; ++page) {
    const auto held = plain.holders.find(page);
    ASSERT_EQ(pool.num_holders(page), held == plain.holders.end() ? 0 : held->second)
        << "page " << page << " step " << step;
    ASSERT_EQ(pool.is_idle(page), std::ranges::count(plain.idle, page) == 1) << "page " << page;
  }
}

void take_or_evict(PagePool& pool, PlainPool& plain) {
  if (pool.num_free() == 0 && !plain.idle.empty()) {
    pool.free_idle(plain.idle.front());
    plain.idle.pop_front();
  }
  const PageId page = pool.take_free();
  if (page == kNoPage) {
    ASSERT_EQ(static_cast<int64_t>(plain.holders.size()), plain.num_pages);
    return;
  }
  ASSERT_TRUE(plain.holders.emplace(page, 1).second) << "page " << page << " was held";
  ASSERT_EQ(std::ranges::count(plain.idle, page), 0) << "page " << page << " was idle";
}

void retain_or_release(PagePool& pool, PlainPool& plain, PageId page, PhiloxStream& random) {
  const auto held = plain.holders.find(page);
  if (random.next_below(2) == 0) {
    if (held == plain.holders.end() && std::erase(plain.idle, page) == 0) return;
    pool.retain(page);
    ++plain.holders[page];
  } else if (held != plain.holders.end()) {
    const bool keep = random.next_below(2) == 0;
    pool.release(page, keep);
    if (--held->second > 0) return;
    plain.holders.erase(held);
    if (keep) plain.idle.push_back(page);
  }
}

TEST(PagePool, AgreesWithAPlainModel) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    PhiloxStream random(seed, 0);
    const auto num_pages = static_cast<int64_t>(1 + random.next_below(12));
    PagePool pool(num_pages);
    PlainPool plain{.num_pages = num_pages};
    for (int step = 0; step < 2000; ++step) {
      if (random.next_below(3) == 0) {
        take_or_evict(pool, plain);
      } else {
        const auto page = static_cast<PageId>(random.next_below(static_cast<uint64_t>(num_pages)));
        retain_or_release(pool, plain, page, random);
      }
      expect_equal(pool, plain, step);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(PagePoolDeathTest, RefusesMisuse) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  PagePool pool(2);
  EXPECT_DEATH(pool.retain(0), "is free");
  EXPECT_DEATH(pool.release(1, false), "holders");
  EXPECT_DEATH(pool.free_idle(0), "is_idle");
}

}  // namespace
}  // namespace slimexx::rollout
