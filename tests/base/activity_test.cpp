#include "slimexx/base/activity.h"

#include <gtest/gtest.h>

#include <stdexcept>
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
  EXPECT_EQ(describe_activity(view()),
            "phase optimizer, in no collective call, the last was all_reduce of 4 ranks (tp), 4096 "
            "bytes");
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
