#include "slimexx/tensor/device_kinds.h"

#include <gtest/gtest.h>

#include <set>

namespace slimexx::tensor {
namespace {

TEST(DeviceKinds, TheTableIsComplete) {
  std::set<std::string> names, driver_names;
  for (const DeviceKind& kind : list_device_kinds()) {
    SCOPED_TRACE(kind.name);
    EXPECT_TRUE(names.insert(kind.name).second);
    EXPECT_FALSE(kind.title.empty());
    EXPECT_EQ(find_device_kind(kind.name), &kind);
    EXPECT_GT(kind.gpus_per_host, 0);
    if (kind.is_cpu()) continue;
    EXPECT_TRUE(driver_names.insert(kind.driver_name).second);
    EXPECT_TRUE(kind.driver_name.starts_with("NVIDIA ")) << kind.driver_name;
    for (const int64_t bytes : {kind.memory_bytes, kind.driver_bytes, kind.nccl_bytes})
      EXPECT_GT(bytes, 0);
    for (const double rate : {kind.sheet_bytes_per_s,
                              kind.sheet_flop_per_s,
                              kind.copy_bytes_per_s,
                              kind.layer_waits.layer,
                              kind.layer_waits.experts,
                              kind.layer_waits.latent_attention,
                              kind.dense.train,
                              kind.dense.prefill,
                              kind.experts.train,
                              kind.experts.prefill,
                              kind.latent_attention.train,
                              kind.latent_attention.prefill,
                              kind.decode_flop_per_s,
                              kind.host_updates.of_rank,
                              kind.host_updates.least,
                              kind.host_updates.most,
                              kind.nvlink_bytes_per_s,
                              kind.network_bytes_per_s,
                              kind.exchange_seconds,
                              kind.low_latency_seconds,
                              kind.low_latency_bytes,
                              kind.expert_doubling_seconds})
      EXPECT_GT(rate, 0);
    for (const double share : {kind.decode_copy_share, kind.update_copy_share, kind.recompute_share,
                               kind.exposed_gradients}) {
      EXPECT_GT(share, 0);
      EXPECT_LE(share, 1);
    }
    EXPECT_LT(kind.copy_bytes_per_s, kind.sheet_bytes_per_s);
    EXPECT_LT(kind.decode_flop_per_s, kind.sheet_flop_per_s);
  }
  EXPECT_EQ(names, (std::set<std::string>{"h200", "h100", "h20", "h800", "cpu"}));
  EXPECT_TRUE(list_device_kinds().front().is_measured);
  EXPECT_TRUE(list_device_kinds().back().is_cpu());
  EXPECT_EQ(find_device_kind("H100"), find_device_kind("h100"));
  EXPECT_EQ(find_device_kind("b200"), nullptr);
}

TEST(DeviceKinds, AGpuIsFoundByTheNameThatTheDriverReports) {
  for (const DeviceKind& kind : list_device_kinds()) {
    if (kind.is_cpu()) continue;
    EXPECT_EQ(decode_rates_of({.name = kind.driver_name, .memory_bytes_per_s = 1}),
              kind.decode_rates())
        << kind.name;
  }
}

TEST(DeviceKinds, AnUnknownGpuHasTheBandwidthThatItReports) {
  const DecodeRates usual = list_device_kinds().front().decode_rates();
  const DecodeRates reported =
      decode_rates_of({.name = "NVIDIA H100 PCIe", .memory_bytes_per_s = 2.4e12});
  EXPECT_DOUBLE_EQ(reported.copy_bytes_per_s, 2.125e12);
  EXPECT_EQ(reported.waits, usual.waits);
  EXPECT_EQ(decode_rates_of({.name = "NVIDIA H100 PCIe"}), usual);
  EXPECT_EQ(decode_rates_of({}), usual);
}

TEST(DeviceKinds, LayersNeverWaitOnTheCpu) { EXPECT_EQ(read_decode_rates({}), DecodeRates{}); }

}  // namespace
}  // namespace slimexx::tensor
