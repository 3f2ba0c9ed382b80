#include "slimexx/tensor/planning.h"

#include <gtest/gtest.h>

#include "sanitized.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::tensor {
namespace {

constexpr Device kGpu{DeviceType::kCuda, 0};
// Less under the thread sanitizer, which leaves little address space.
constexpr int64_t kMuch = int64_t{1} << (SLX_SANITIZED ? 34 : 40);

TEST(PlanningScope, CountsBuffersThatNobodyCouldHold) {
  const int64_t before = allocation_counters({}).live_bytes;
  {
    const PlanningScope scope;
    EXPECT_TRUE(is_planning());
    const Buffer weights(kGpu, 3 * kMuch, "weights");
    {
      const Buffer more(kGpu, kMuch, "weights"), host({}, kMuch, "on the host");
      const auto live = list_allocations(kGpu);
      ASSERT_EQ(live.size(), 1u);
      EXPECT_EQ(live[0].what_for, "weights");
      EXPECT_EQ(live[0].bytes, 4 * kMuch);
      EXPECT_EQ(allocation_counters({}).live_bytes, kMuch);
    }
    EXPECT_EQ(allocation_counters(kGpu).live_bytes, 3 * kMuch);
    EXPECT_EQ(allocation_counters(kGpu).peak_bytes, 4 * kMuch);
    const Tensor view = weights.view(DType::kU8, {16}, 2 * kMuch);
    EXPECT_EQ(static_cast<char*>(view.raw()) - static_cast<char*>(weights.data()), 2 * kMuch);
  }
  EXPECT_FALSE(is_planning());
  EXPECT_EQ(allocation_counters({}).live_bytes, before);
}

// Streams of a device can be used in the scope, so objects built there need no device.
TEST(PlanningScope, StreamsOfDevicesPlan) {
  const PlanningScope scope;
  EXPECT_TRUE(compute_stream(kGpu).is_planning);
  EXPECT_TRUE(side_stream(kGpu).is_planning);
  float value = 1;
  upload(compute_stream(kGpu), Buffer(kGpu, 4, "a number").view(DType::kF32, {1}), &value);
  synchronize(compute_stream(kGpu));
  Arena arena(kGpu, 64, "scratch");
  arena.reserve(kMuch);
  EXPECT_EQ(allocation_counters(kGpu).live_bytes, kMuch);
}

TEST(PlanningScope, StagingIsPlainMemory) {
  const PlanningScope scope;
  const StagingBuffer staging(kGpu, 64, "batches");
  EXPECT_EQ(staging.data()[63], 0);
}

}  // namespace
}  // namespace slimexx::tensor
