// Events order two streams of a device.
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "slimexx/tensor/tensor.h"
#include "tensor/strided_copy_case.h"

namespace slimexx::tensor {
namespace {

constexpr Device kCuda{DeviceType::kCuda, 0};

// Copies 64 MiB on the side stream; work that waits for the event must see all of it, in each of
// ten rounds with new data.
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

TEST(CudaCopyRowBytes, TakesColumns) {
  if (count_cuda_devices() == 0) GTEST_SKIP() << "no GPU";
  select_device(kCuda);
  expect_columns_copied(kCuda);
}

}  // namespace
}  // namespace slimexx::tensor
