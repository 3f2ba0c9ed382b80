// GPUs that `slimexx plan` knows. The H200's values are measured: memory and driver from the banner
// of a run, rates from docs/performance.md. The other GPUs are scaled by their data sheets.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "slimexx/base/error.h"
#include "slimexx/rl/plan.h"

namespace slimexx::rl {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;
// From the banner of GLM-Z1-9B on two H100s, TP 2.
constexpr int64_t kNcclBytes = 1950 * kMib;
// NVLink within a host, where the data sheet says 900 GB/s (H100, H200, H20): bytes per second that
// collectives of bf16 rows and f32 gradients reach.
constexpr double kNvlink = 350e9;
// One 400 Gb/s adapter per GPU at 90 %. Nothing was measured between hosts.
constexpr double kNetwork = 45e9;

std::vector<GpuKind> make_gpu_kinds() {
  const auto scaled = [](const char* name, const char* title, int64_t mib, double copy,
                         double compute) {
    return GpuKind{.name = name,
                   .title = title,
                   .memory_bytes = mib * kMib,
                   .driver_bytes = 700 * kMib,
                   .nccl_bytes = kNcclBytes,
                   .copy_bytes_per_s = copy,
                   .nvlink_bytes_per_s = kNvlink,
                   .network_bytes_per_s = kNetwork,
                   .compute = compute};
  };
  GpuKind h200 = scaled("h200", "NVIDIA H200 (141 GB)", 143'156, 4.25e12, 1);
  h200.is_measured = true;
  GpuKind h800 = scaled("h800", "NVIDIA H800 (80 GB)", 81'079, 4.25e12 * 3.35 / 4.8, 1);
  h800.nvlink_bytes_per_s = kNvlink * 400 / 900;
  return {h200, scaled("h100", "NVIDIA H100 SXM (80 GB)", 81'079, 4.25e12 * 3.35 / 4.8, 1),
          scaled("h20", "NVIDIA H20 (96 GB)", 97'000, 4.25e12 * 4.0 / 4.8, 148.0 / 989), h800,
          GpuKind{.name = "cpu", .title = "CPU"}};
}

}  // namespace

std::span<const GpuKind> list_gpu_kinds() {
  static const std::vector<GpuKind> kinds = make_gpu_kinds();
  return kinds;
}

const GpuKind& find_gpu_kind(const std::string& name) {
  const auto kinds = list_gpu_kinds();
  const auto same_letter = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == b;
  };
  const auto found = std::ranges::find_if(
      kinds, [&](const GpuKind& kind) { return std::ranges::equal(name, kind.name, same_letter); });
  if (found != kinds.end()) return *found;
  std::string known;
  for (const GpuKind& kind : kinds) known += (known.empty() ? "" : ", ") + kind.name;
  throw Error(ErrorCode::kUsage, fmt::format("\"{}\" is not a GPU that plan knows", name), known,
              "--gpu");
}

}  // namespace slimexx::rl
