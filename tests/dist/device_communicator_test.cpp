#include "slimexx/dist/device_communicator.h"

#include <gtest/gtest.h>

#include "dist/device_exchange_cases.h"
#include "slimexx/base/error.h"

namespace slimexx::dist {
namespace {

constexpr tensor::Device kCuda{tensor::DeviceType::kCuda, 0};

#ifndef SLX_WITH_NCCL
TEST(DeviceCommunicator, SaysWhatIsMissing) {
  EXPECT_EQ(device_communicator_version(), "");
  const auto host = make_single_communicator();
  const std::vector<int> group = {0};
  try {
    make_device_communicator(*host, group, kCuda);
    FAIL() << "made one";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kEnvironment);
    EXPECT_NE(e.message().find("no NCCL"), std::string::npos) << e.what();
  }
}
#endif

// nccl_ranks.cpp has several ranks.
TEST(DeviceCommunicator, SingleRank) {
  if (device_communicator_version().empty()) GTEST_SKIP() << "no NCCL";
  if (tensor::count_cuda_devices() == 0) GTEST_SKIP() << "no GPU";
  const auto host = make_single_communicator();
  const std::vector<int> group = {0};
  const auto communicator = make_device_communicator(*host, group, kCuda);
  EXPECT_EQ(communicator->rank(), 0);
  EXPECT_EQ(communicator->size(), 1);
  EXPECT_EQ(check_device_exchange(*communicator, *host, kCuda), "");
}

}  // namespace
}  // namespace slimexx::dist
