#include "rollout/scheduling/lru_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace slimexx::rollout {
namespace {

TEST(LruMap, TheLeastRecentlyUsedMakesRoom) {
  LruMap<int, std::unique_ptr<int>> map(2);
  map.insert(1, [] { return std::make_unique<int>(10); });
  map.insert(2, [] { return std::make_unique<int>(20); });
  ASSERT_NE(map.find(1), nullptr);  // 2 is now the least recently used
  map.insert(3, [] { return std::make_unique<int>(30); });
  EXPECT_EQ(map.size(), 2u);
  EXPECT_EQ(map.find(2), nullptr);
  ASSERT_NE(map.find(1), nullptr);
  EXPECT_EQ(**map.find(1), 10);
  EXPECT_EQ(**map.find(3), 30);
}

// The evicted entry frees its memory before the new one allocates.
TEST(LruMap, RoomIsMadeBeforeTheNewOneIsMade) {
  LruMap<int, std::shared_ptr<int>> map(1);
  const auto first = std::make_shared<int>(1);
  map.insert(1, [&] { return first; });
  EXPECT_EQ(first.use_count(), 2);
  map.insert(2, [&] {
    EXPECT_EQ(first.use_count(), 1);
    return std::make_shared<int>(2);
  });
}

TEST(LruMap, HasWhatAPlainModelHas) {
  constexpr size_t kCapacity = 5;
  LruMap<int, int> map(kCapacity);
  std::vector<int> model;  // most recently used last
  uint32_t state = 1;
  for (int i = 0; i < 2000; ++i) {
    state = state * 1664525u + 1013904223u;
    const int key = static_cast<int>(state >> 16) % 9;
    const auto at = std::find(model.begin(), model.end(), key);
    int* const value = map.find(key);
    ASSERT_EQ(value != nullptr, at != model.end()) << i;
    if (value == nullptr) {
      map.insert(key, [&] { return 100 + key; });
      if (model.size() == kCapacity) model.erase(model.begin());
    } else {
      ASSERT_EQ(*value, 100 + key);
      model.erase(at);
    }
    model.push_back(key);
    ASSERT_EQ(map.size(), model.size());
  }
}

}  // namespace
}  // namespace slimexx::rollout
