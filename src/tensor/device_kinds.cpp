// The H200's values are measured: memory and driver from the banner of a run, rates from
// docs/performance.md. The other GPUs are scaled by their data sheets.
#include "slimexx/tensor/device_kinds.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <vector>

#include "slimexx/base/log.h"
#include "tensor/device_api.h"

namespace slimexx::tensor {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;
// The H200's data sheet: memory in TB/s, dense bf16 products in TFLOP/s, NVLink in GB/s.
constexpr double kSheetMemory = 4.8, kSheetProducts = 989, kSheetNvlink = 900;

DeviceKind make_h200() {
  return {
      .name = "h200",
      .title = "NVIDIA H200 (141 GB)",
      .driver_name = "NVIDIA H200",
      .is_measured = true,
      .memory_bytes = 143'156 * kMib,
      .driver_bytes = 700 * kMib,
      // From the banner of GLM-Z1-9B on two H100s, TP 2.
      .nccl_bytes = 1950 * kMib,
      .sheet_bytes_per_s = kSheetMemory * 1e12,
      .sheet_flop_per_s = kSheetProducts * 1e12,
      .copy_bytes_per_s = 4.25e12,
      // Apart from the waits of layers.
      .decode_copy_share = 0.93,
      .update_copy_share = 0.9,
      // Steps of one sequence: 24 us per layer, 28 us with experts, 40 us with experts and latent
      // attention.
      .layer_waits = {.layer = 23.5e-6, .experts = 4.7e-6, .latent_attention = 11.8e-6},
      .dense = {.train = 556e12, .prefill = 700e12},
      .experts = {.train = 472e12, .prefill = 480e12},
      .latent_attention = {.train = 416e12, .prefill = 365e12},
      // With 256 rows 530 to 680 TFLOP/s.
      .decode_flop_per_s = 600e12,
      // 492 of 556 TFLOP/s (Qwen3-4B). Not measured for experts.
      .recompute_share = 492.0 / 556,
      // Measured for all ranks of a host: one rank 117e9 (H200, 16 cores), two 103e9 (H100s, 32
      // cores), four 231e9 (H200s, 64 cores). More ranks are assumed to be little faster.
      .host_updates = {.of_rank = 57e9, .least = 110e9, .most = 240e9},
      .gpus_per_host = 8,
      // Rates that collectives of bf16 rows and f32 gradients reach.
      .nvlink_bytes_per_s = 350e9,
      // One 400 Gb/s adapter per GPU at 90 %. Nothing was measured between hosts.
      .network_bytes_per_s = 45e9,
      // Two H100s.
      .exchange_seconds = 9.5e-6,
      .low_latency_seconds = 2.3e-6,
      .low_latency_bytes = 512 << 10,
      // In steps of Qwen3-30B-A3B, dispatch and combine took 23 us per layer with EP 2 and 49 us
      // with EP 4, beyond the time for a rank's bytes.
      .expert_doubling_seconds = 12e-6,
      // Four H200s.
      .exposed_gradients = 0.3,
  };
}

// Numbers of a data sheet.
struct Sheet {
  const char *name, *title, *driver_name;
  int64_t memory_mib;
  double memory_tb_per_s, tflop_per_s, nvlink_gb_per_s;
};

// Scales bandwidths and products of the H200. Latencies and waits are the same as on the H200.
DeviceKind scale(const DeviceKind& measured, const Sheet& sheet) {
  DeviceKind kind = measured;
  kind.name = sheet.name;
  kind.title = sheet.title;
  kind.driver_name = sheet.driver_name;
  kind.is_measured = false;
  kind.memory_bytes = sheet.memory_mib * kMib;
  kind.sheet_bytes_per_s = sheet.memory_tb_per_s * 1e12;
  kind.sheet_flop_per_s = sheet.tflop_per_s * 1e12;
  kind.copy_bytes_per_s = measured.copy_bytes_per_s * sheet.memory_tb_per_s / kSheetMemory;
  kind.nvlink_bytes_per_s = measured.nvlink_bytes_per_s * sheet.nvlink_gb_per_s / kSheetNvlink;
  const double compute = sheet.tflop_per_s / kSheetProducts;
  for (ProductRates* rates : {&kind.dense, &kind.experts, &kind.latent_attention}) {
    rates->train *= compute;
    rates->prefill *= compute;
  }
  kind.decode_flop_per_s *= compute;
  return kind;
}

std::vector<DeviceKind> make_device_kinds() {
  const DeviceKind h200 = make_h200();
  return {
      h200,
      scale(h200,
            {"h100", "NVIDIA H100 SXM (80 GB)", "NVIDIA H100 80GB HBM3", 81'079, 3.35, 989, 900}),
      scale(h200, {"h20", "NVIDIA H20 (96 GB)", "NVIDIA H20", 97'000, 4.0, 148, 900}),
      scale(h200, {"h800", "NVIDIA H800 (80 GB)", "NVIDIA H800", 81'079, 3.35, 989, 400}),
      {.name = "cpu", .title = "CPU"},
  };
}

}  // namespace

std::span<const DeviceKind> list_device_kinds() {
  static const std::vector<DeviceKind> kinds = make_device_kinds();
  return kinds;
}

const DeviceKind* find_device_kind(const std::string& name) {
  const auto same_letter = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == b;
  };
  const auto kinds = list_device_kinds();
  const auto found = std::ranges::find_if(kinds, [&](const DeviceKind& kind) {
    return std::ranges::equal(name, kind.name, same_letter);
  });
  return found == kinds.end() ? nullptr : &*found;
}

DecodeRates decode_rates_of(const DeviceReport& report) {
  const auto kinds = list_device_kinds();
  const auto found = std::ranges::find(kinds, report.name, &DeviceKind::driver_name);
  if (found != kinds.end() && !found->is_cpu()) return found->decode_rates();
  const DeviceKind& usual = kinds.front();
  DecodeRates rates = usual.decode_rates();
  if (report.memory_bytes_per_s > 0)
    rates.copy_bytes_per_s =
        report.memory_bytes_per_s * usual.copy_bytes_per_s / usual.sheet_bytes_per_s;
  static std::atomic_flag is_logged;
  if (!is_logged.test_and_set())
    log_info("no rates are known for \"{}\": drafts are chosen by the rates of the {}, {}",
             report.name, usual.title,
             report.memory_bytes_per_s > 0
                 ? fmt::format("with copies at {:.2f} TB/s, from the memory clock",
                               rates.copy_bytes_per_s * 1e-12)
                 : "because its memory clock is also unknown");
  return rates;
}

DecodeRates read_decode_rates(Device device) {
  if (device.is_cpu()) return list_device_kinds().back().decode_rates();
  return decode_rates_of(device_api::report(device.index));
}

}  // namespace slimexx::tensor
