// Streams and events of the CPU: work is done when its call returns, so every event is passed.
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "slimexx/tensor/strided_copy.h"
#include "slimexx/tensor/tensor.h"

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
  event.record(side);  // again, as every step does
  event.synchronize();
}

// Columns of one matrix become columns of another, and nothing else changes.
TEST(CopyRowBytes, TakesColumns) {
  constexpr int64_t kRows = 37, kFrom = 300, kTo = 200, kWidth = 77, kAt = 19;
  const Buffer from(Device{}, kRows * kFrom, "test"), to(Device{}, kRows * kTo, "test");
  const Tensor source = from.view(DType::kU8, {kRows * kFrom}),
               target = to.view(DType::kU8, {kRows * kTo});
  std::vector<uint8_t> bytes, back(kRows * kTo), expected(kRows * kTo, 0);
  for (int64_t i = 0; i < kRows * kFrom; ++i) bytes.push_back(static_cast<uint8_t>(1 + i % 251));
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t c = 0; c < kWidth; ++c)
      expected[static_cast<size_t>(row * kTo + kAt + c)] =
          bytes[static_cast<size_t>(row * kFrom + c)];
  const Stream stream = compute_stream(Device{});
  upload(stream, source, bytes.data());
  const StridedBytes destination{target.data<char>() + kAt, kTo};
  copy_row_bytes(planning_stream(Device{}), destination, {source.raw(), kFrom}, kWidth, kRows);
  download(stream, back.data(), target);
  EXPECT_EQ(back, std::vector<uint8_t>(kRows * kTo, 0));
  copy_row_bytes(stream, destination, {source.raw(), kFrom}, kWidth, kRows);
  download(stream, back.data(), target);
  EXPECT_EQ(back, expected);
}

}  // namespace
}  // namespace slimexx::tensor
