#include "slimexx/dist/device_collective.h"

#include <gtest/gtest.h>

#include "dist/collective_contract.h"
#include "slimexx/base/error.h"
#include "slimexx/dist/thread_ranks.h"

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

// nccl_ranks.cpp tests several ranks.
TEST(DeviceCollective, OneRank) {
  if (device_collective_version().empty()) GTEST_SKIP() << "no NCCL";
  if (tensor::count_cuda_devices() == 0) GTEST_SKIP() << "no GPU";
  Collective host;
  const auto collective = make_device_collective(host, kCuda);
  EXPECT_EQ(collective->rank(), 0);
  EXPECT_EQ(collective->size(), 1);
  EXPECT_EQ(check_collective(*collective, kCuda), "");
}

TEST(DeviceCollective, ThreadRanksShareADevice) {
  if (tensor::count_cuda_devices() == 0) GTEST_SKIP() << "no GPU";
  for (const int size : {2, 3, 5}) {
    run_thread_ranks(size, [](Collective& host) {
      const auto ranks = host.on_device(kCuda);
      ASSERT_NE(ranks, nullptr);
      EXPECT_EQ(check_collective(*ranks, kCuda), "");
    });
  }
}

// NCCL works for threads with one device each, as it does for processes.
TEST(DeviceCollective, ThreadRanksOfSeveralDevices) {
  if (device_collective_version().empty()) GTEST_SKIP() << "no NCCL";
  if (tensor::count_cuda_devices() < 2) GTEST_SKIP() << "one GPU";
  run_thread_ranks(2, [](Collective& host) {
    const tensor::Device device{tensor::DeviceType::kCuda, host.rank()};
    tensor::select_device(device);
    const auto ranks = make_device_collective(host, device);
    EXPECT_EQ(check_collective(*ranks, device), "");
  });
}

// Threads form a device group only if all of them name the same device. A single rank gets none.
TEST(DeviceCollective, ThreadRanksAgreeOnTheDevice) {
  Collective one;
  EXPECT_EQ(one.on_device({}), nullptr);
  run_thread_ranks(3, [](Collective& host) {
    const tensor::Device own{tensor::DeviceType::kCuda, host.rank() / 2};
    EXPECT_EQ(host.on_device(own), nullptr);
    const auto ranks = host.on_device({});
    ASSERT_NE(ranks, nullptr);
    EXPECT_EQ(check_collective(*ranks, {}), "");
    EXPECT_EQ(check_collective(host, {}), "");
  });
}

}  // namespace
}  // namespace slimexx::dist
