#include "dist/watch/slow_call.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>

namespace slimexx::dist {
namespace {

using Seconds = SlowCallNotice::Seconds;

TEST(SlowCall, IsToldAfterEveryPeriod) {
  std::atomic<int> calls = 0;
  std::atomic<double> told = 0;
  auto notice = std::make_unique<SlowCallNotice>(Seconds(0.01), [&](Seconds waited) {
    told = waited.count();
    ++calls;
  });
  while (calls < 3) std::this_thread::yield();
  notice.reset();
  const int ended = calls;
  EXPECT_DOUBLE_EQ(told, 0.01 * ended);
  std::this_thread::sleep_for(Seconds(0.05));
  EXPECT_EQ(calls, ended);
}

TEST(SlowCall, AShortOneIsNotToldOf) {
  bool was_told = false;
  {
    const SlowCallNotice notice(Seconds(600), [&](Seconds) { was_told = true; });
  }
  EXPECT_FALSE(was_told);
}

}  // namespace
}  // namespace slimexx::dist
