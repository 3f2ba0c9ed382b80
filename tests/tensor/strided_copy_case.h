// Checks copy_row_bytes on any device.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "slimexx/tensor/strided_copy.h"

namespace slimexx::tensor {

// Copies columns of one matrix to columns of another; nothing else may change.
inline void expect_columns_copied(Device device) {
  constexpr int64_t kRows = 37, kFrom = 300, kTo = 200, kWidth = 77, kAt = 19;
  const Buffer from(device, kRows * kFrom, "test"), to(device, kRows * kTo, "test");
  const Tensor source = from.view(DType::kU8, {kRows * kFrom}),
               target = to.view(DType::kU8, {kRows * kTo});
  std::vector<uint8_t> bytes, back(kRows * kTo), expected(kRows * kTo, 0);
  for (int64_t i = 0; i < kRows * kFrom; ++i) bytes.push_back(static_cast<uint8_t>(1 + i % 251));
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t c = 0; c < kWidth; ++c)
      expected[static_cast<size_t>(row * kTo + kAt + c)] =
          bytes[static_cast<size_t>(row * kFrom + c)];
  const Stream stream = compute_stream(device);
  upload(stream, source, bytes.data());
  const StridedBytes destination{target.data<char>() + kAt, kTo};
  copy_row_bytes(planning_stream(device), destination, {source.raw(), kFrom}, kWidth, kRows);
  download(stream, back.data(), target);
  EXPECT_EQ(back, std::vector<uint8_t>(kRows * kTo, 0));
  copy_row_bytes(stream, destination, {source.raw(), kFrom}, kWidth, kRows);
  download(stream, back.data(), target);
  EXPECT_EQ(back, expected);
}

}  // namespace slimexx::tensor
