#include "slimexx/base/activity.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>

namespace slimexx {
namespace {

constexpr ShortName kOuter{"all_reduce"}, kInner{"all_gather"}, kGroup{"tp"};

ActivityView view() { return view_activity(own_activity()); }

TEST(Activity, NamesAreCutAtTheirLimit) {
  EXPECT_EQ(ShortName("").text(), "");
  EXPECT_EQ(ShortName("generate").text(), "generate");
  EXPECT_EQ(ShortName("12345678901234567890123").text(), "12345678901234567890123");
  EXPECT_EQ(ShortName("123456789012345678901234").text(), "12345678901234567890123");
  EXPECT_EQ(ShortName("gr\xc3\xb6\xc3\x9f"
                      "e")
                .text(),
            "gr\xc3\xb6\xc3\x9f"
            "e");
}

TEST(Activity, PhasesNest) {
  EXPECT_EQ(describe_activity(view()), "phase start, in no collective call");
  const PhaseScope outer("rollout");
  {
    const PhaseScope inner("generate");
    EXPECT_EQ(view().phase, "generate");
  }
  EXPECT_EQ(view().phase, "rollout");
}

TEST(Activity, CallWithinACallIsNotTold) {
  const PhaseScope phase("optimizer");
  const int64_t before = view().progress;
  {
    const CallScope outer(kOuter, kGroup, 4, 4096);
    {
      const CallScope inner(kInner, kGroup, 4, 1024);
      EXPECT_EQ(describe_activity(view()),
                "phase optimizer, in all_reduce of 4 ranks (tp), 4096 bytes");
    }
    EXPECT_TRUE(view().is_in_call);
    EXPECT_EQ(view().progress, before + 1);
  }
  EXPECT_FALSE(view().is_in_call);
  EXPECT_EQ(
      describe_activity(view()),
      "phase optimizer, in no collective call, the last one was all_reduce of 4 ranks (tp), 4096 "
      "bytes");
}

TEST(Activity, CallsOfAGroupAreCounted) {
  std::thread([] {
    note_membership({.group = 7, .rank = 1});
    EXPECT_EQ(view().find_membership(7)->num_calls, 0);
    EXPECT_EQ(view().find_membership(8), nullptr);
    {
      const CallScope call(kOuter, kGroup, 4, 0, {.group = 7, .rank = 1, .number = 5});
      EXPECT_EQ(describe_activity(view()), "phase start, in all_reduce of 4 ranks (tp, call 5)");
    }
    {
      const CallScope send(kInner, kGroup, 4, 0, {.group = 7, .rank = 1, .peer = 3});
      EXPECT_EQ(view().peer, 3);
    }
    EXPECT_EQ(view().find_membership(7)->num_calls, 5);
    EXPECT_EQ(view().find_membership(7)->rank, 1);
  }).join();
}

TEST(Activity, GroupThatWasNotCalledForLongestIsForgotten) {
  std::thread([] {
    for (uint64_t group = 1; group <= kMostGroups; ++group) {
      note_progress();
      note_membership({.group = group, .rank = 0, .number = 1});
    }
    note_progress();
    note_membership({.group = 1, .rank = 0, .number = 2});
    note_membership({.group = 1000, .rank = 0, .number = 1});
    EXPECT_NE(view().find_membership(1), nullptr);
    EXPECT_EQ(view().find_membership(2), nullptr);
    EXPECT_NE(view().find_membership(3), nullptr);
    EXPECT_NE(view().find_membership(1000), nullptr);
    EXPECT_EQ(view().memberships.size(), kMostGroups);
  }).join();
}

TEST(Activity, OutsideWaitsNestAndCount) {
  const OutsideWaits before = count_outside_waits();
  {
    const OutsideWaitScope outer(ShortName("a service"));
    const std::string text = describe_activity(view());
    EXPECT_EQ(text.find("phase start, in no collective call, waiting for a service"), 0u) << text;
    std::thread([&] {
      const OutsideWaitScope inner(ShortName("the device"));
      EXPECT_EQ(count_outside_waits().num_open, before.num_open + 2) << "of all threads";
    }).join();
    EXPECT_EQ(view().outside, "a service");
  }
  EXPECT_EQ(view().outside, "");
  EXPECT_EQ(count_outside_waits().num_open, before.num_open);
  EXPECT_EQ(count_outside_waits().num_begun, before.num_begun + 2);
}

TEST(Activity, MovesWithItsThread) {
  const PhaseScope phase("generate");
  const int64_t before = view().progress;
  Activity place;
  keep_activity_at(&place);
  note_progress();
  EXPECT_EQ(view_activity(place).phase, "generate");
  EXPECT_EQ(view_activity(place).progress, before + 1);
  std::thread([] { EXPECT_EQ(view().phase, "") << "another thread's"; }).join();
  keep_activity_at(nullptr);
  EXPECT_EQ(view().phase, "generate");
  EXPECT_EQ(view().progress, before + 1);
}

TEST(Activity, PhaseThatFailedIsTheInnermost) {
  try {
    const PhaseScope outer("rollout");
    const PhaseScope inner("reward");
    throw std::runtime_error("on purpose");
  } catch (const std::exception&) {
    EXPECT_EQ(failed_phase(), "reward");
  }
  const PhaseScope next("save_model");
  EXPECT_EQ(failed_phase(), "");
}

}  // namespace
}  // namespace slimexx
