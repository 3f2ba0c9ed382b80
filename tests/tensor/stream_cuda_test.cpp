// Events order two queues of a device.
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "slimexx/tensor/strided_copy.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::tensor {
namespace {

constexpr Device kCuda{DeviceType::kCuda, 0};

// 64 MiB travel on the side stream; what waits for the event must find all of them, in each of ten
// rounds of other bytes.
TEST(CudaEvent, WorkBehindItFindsWhatWasBeforeIt) {
  if (count_cuda_devices() == 0) GTEST_SKIP() << "no GPU";
  select_device(kCuda);
  constexpr int64_t kBytes = 64 << 20;
  const Stream compute = compute_stream(kCuda), side = side_stream(kCuda);
  const StagingBuffer source(kCuda, kBytes, "test");
  const Buffer first(kCuda, kBytes, "test"), second(kCuda, kBytes, "test");
  const Tensor a = first.view(DType::kU8, {kBytes}), b = second.view(DType::kU8, {kBytes});
  std::vector<uint8_t> back(kBytes);
  Event uploaded, read;
  read.record(compute);
  for (uint8_t round = 1; round <= 10; ++round) {
    for (int64_t i = 0; i < kBytes; i += 4096) source.data()[i] = static_cast<char>(round);
    read.wait_on(side);
    upload(side, a, source.data());
    uploaded.record(side);
    Event moved(std::move(uploaded));
    moved.wait_on(compute);
    copy_bytes(compute, b, a);
    read.record(compute);
    download(compute, back.data(), b);
    for (int64_t i = 0; i < kBytes; i += 4096) ASSERT_EQ(back[static_cast<size_t>(i)], round) << i;
    moved.synchronize();
    uploaded = std::move(moved);
  }
}

// Columns of one matrix become columns of another, and nothing else changes.
TEST(CudaCopyRowBytes, TakesColumns) {
  if (count_cuda_devices() == 0) GTEST_SKIP() << "no GPU";
  select_device(kCuda);
  constexpr int64_t kRows = 37, kFrom = 300, kTo = 200, kWidth = 77, kAt = 19;
  const Buffer from(kCuda, kRows * kFrom, "test"), to(kCuda, kRows * kTo, "test");
  const Tensor source = from.view(DType::kU8, {kRows * kFrom}),
               target = to.view(DType::kU8, {kRows * kTo});
  std::vector<uint8_t> bytes, back(kRows * kTo), expected(kRows * kTo, 0);
  for (int64_t i = 0; i < kRows * kFrom; ++i) bytes.push_back(static_cast<uint8_t>(1 + i % 251));
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t c = 0; c < kWidth; ++c)
      expected[static_cast<size_t>(row * kTo + kAt + c)] =
          bytes[static_cast<size_t>(row * kFrom + c)];
  const Stream stream = compute_stream(kCuda);
  upload(stream, source, bytes.data());
  const StridedBytes destination{target.data<char>() + kAt, kTo};
  copy_row_bytes(planning_stream(kCuda), destination, {source.raw(), kFrom}, kWidth, kRows);
  download(stream, back.data(), target);
  EXPECT_EQ(back, std::vector<uint8_t>(kRows * kTo, 0));
  copy_row_bytes(stream, destination, {source.raw(), kFrom}, kWidth, kRows);
  download(stream, back.data(), target);
  EXPECT_EQ(back, expected);
}

}  // namespace
}  // namespace slimexx::tensor
