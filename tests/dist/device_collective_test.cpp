#include "slimexx/dist/device_collective.h"

#include <gtest/gtest.h>

#include "dist/collective_contract.h"
#include "slimexx/base/error.h"

namespace slimexx::dist {
namespace {

constexpr tensor::Device kCuda{tensor::DeviceType::kCuda, 0};

#ifndef SLX_WITH_NCCL
TEST(DeviceCollective, SaysWhatIsMissing) {
  EXPECT_EQ(device_collective_version(), "");
  Collective host;
  try {
    make_device_collective(host, kCuda);
    FAIL() << "made one";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kEnvironment);
    EXPECT_NE(e.message().find("no NCCL"), std::string::npos) << e.what();
  }
}
#endif

// nccl_ranks.cpp has several ranks.
TEST(DeviceCollective, OneRank) {
  if (device_collective_version().empty()) GTEST_SKIP() << "no NCCL";
  if (tensor::count_cuda_devices() == 0) GTEST_SKIP() << "no GPU";
  Collective host;
  const auto collective = make_device_collective(host, kCuda);
  EXPECT_EQ(collective->rank(), 0);
  EXPECT_EQ(collective->size(), 1);
  EXPECT_EQ(check_collective(*collective, kCuda), "");
}

}  // namespace
}  // namespace slimexx::dist
