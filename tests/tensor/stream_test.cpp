// Tests CPU streams and events: work is complete when its call returns, so every event has passed.
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "slimexx/tensor/tensor.h"
#include "tensor/strided_copy_case.h"

namespace slimexx::tensor {
namespace {

TEST(Stream, CopiesBothWaysAndOnThePlanningStreamNot) {
  const Buffer buffer({}, 16, "test"), other({}, 16, "test");
  const Tensor t = buffer.view(DType::kF32, {4}), u = other.view(DType::kF32, {4});
  const std::vector<float> source = {1, 2, 3, 4};
  std::vector<float> back(4, -1);
  const Stream plan = planning_stream({});
  EXPECT_TRUE(plan.is_planning);

  upload(plan, t, source.data());
  download(plan, back.data(), t);
  EXPECT_EQ(back, std::vector<float>(4, -1));
  EXPECT_EQ(t.f32()[3], 0);

  const Stream stream = compute_stream({});
  EXPECT_FALSE(stream.is_planning);
  upload(stream, t, source.data());
  copy_bytes(plan, u, t);
  EXPECT_EQ(u.f32()[3], 0);
  copy_bytes(stream, u, t);
  download(stream, back.data(), u);
  synchronize(stream);
  EXPECT_EQ(back, source);
}

TEST(Event, IsPassedAndMayBeMoved) {
  const Stream stream = compute_stream({}), side = side_stream({});
  const Event never_recorded;
  never_recorded.wait_on(stream);
  never_recorded.synchronize();
  Event event;
  event.record(side);
  event.wait_on(stream);
  Event moved(std::move(event));
  moved.synchronize();
  event = std::move(moved);
  event.record(side);  // recorded again, as in every step
  event.synchronize();
}

TEST(CopyRowBytes, TakesColumns) { expect_columns_copied(Device{}); }

}  // namespace
}  // namespace slimexx::tensor
