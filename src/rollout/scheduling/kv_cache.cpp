#include "rollout/scheduling/kv_cache.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "slimexx/base/error.h"
#include "slimexx/base/host_memory.h"
#include "slimexx/base/strings.h"
#include "slimexx/tensor/planning.h"

namespace slimexx::rollout {
namespace {

constexpr int64_t kAlignment = 256;

int64_t padded(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

void check_cache_kinds(const model::ModelSpec& spec) {
  for (int64_t i = 0; i < spec.num_layers(); ++i) {
    const auto check = [i](const auto& block) {
      if (cache_kind(block) == model::CacheKind::kPages) return;
      throw Error(
          ErrorCode::kUsage,
          fmt::format("layer {} ({}) keeps a state per sequence, but the rollout engine can "
                      "only cache rows per token",
                      i, kind_name(block)),
          "train on samples that another program generated "
          "(debug.load_rollout), or on supervised examples",
          "rollout");
    };
    std::visit(check, spec.layer(i).attention);
  }
}

int64_t page_bytes(const model::ModelSpec& spec, tensor::DType dtype, int64_t page_tokens) {
  int64_t bytes = 0;
  const auto add = [&](const auto& block) {
    bytes += model::page_bytes(block, dtype, page_tokens);
  };
  for (const model::LayerSpec& layer : spec.layers) std::visit(add, layer.attention);
  return bytes;
}

int64_t cache_padding(const model::ModelSpec& spec, tensor::DType dtype, int64_t page_tokens) {
  int64_t bytes = 0;
  const auto add = [&](const auto& block) {
    if (model::page_bytes(block, dtype, page_tokens) % (2 * kAlignment) != 0)
      bytes += 2 * kAlignment;
  };
  for (const model::LayerSpec& layer : spec.layers) std::visit(add, layer.attention);
  return bytes;
}

int64_t useful_pages(const EngineOptions& options, int64_t bytes_per_page,
                     int64_t pages_per_sequence) {
  // Slot numbers have 32 bits.
  const int64_t addressable = std::numeric_limits<int32_t>::max() / options.page_tokens;
  if (options.max_total_tokens > 0)
    return std::min(addressable, (options.max_total_tokens - 1) / options.page_tokens + 1);
  // More than twice the pages of all running sequences would only keep prefixes that are no longer
  // requested.
  double pages = 2.0 * static_cast<double>(options.max_running_requests) *
                 static_cast<double>(pages_per_sequence);
  if (options.kv_cache_gib)
    pages = std::min(pages, *options.kv_cache_gib * 0x1p30 / static_cast<double>(bytes_per_page));
  return static_cast<int64_t>(std::min(pages, static_cast<double>(addressable)));
}

namespace {

// The rest of the device's share of memory, after the engine's workspace is subtracted.
int64_t bytes_left(const EngineOptions& options, const EngineMemory& memory,
                   tensor::Device device) {
  if (device.is_cpu()) return int64_t{1} << 30;
  const tensor::DeviceMemory now = tensor::device_memory(device);
  const auto total = static_cast<double>(now.total_bytes);
  const auto share = static_cast<int64_t>(options.mem_fraction_static * total);
  return share - (now.total_bytes - now.free_bytes) - memory.workspace_bytes;
}

// Called before the cache, and all buffers that grow with it, are allocated.
void check_host_room(const EngineOptions& options, int64_t bytes) {
  const HostMemory host = host_memory();
  if (host.total_bytes == 0 || bytes <= host.free_bytes) return;
  const bool is_tokens = options.max_total_tokens > 0;
  throw Error(
      ErrorCode::kEnvironment,
      fmt::format("not enough host memory for the KV cache: {} needed, {} of {} free",
                  format_bytes(static_cast<double>(bytes)),
                  format_bytes(static_cast<double>(host.free_bytes)),
                  format_bytes(static_cast<double>(host.total_bytes))),
      is_tokens
          ? fmt::format("it is {} tokens: lower it, or leave it out and set rollout.kv_cache_gib",
                        options.max_total_tokens)
          : "lower it",
      is_tokens ? "rollout.max_total_tokens" : "rollout.kv_cache_gib");
}

// Factor by which a size is enlarged before it is printed with four digits, so that the printed
// size is never too small.
constexpr double kRoundedUp = 1.001;

}  // namespace

int64_t count_pages(const EngineOptions& options, const EngineMemory& memory, tensor::Device device,
                    const tensor::Tensor& cache_memory) {
  const bool is_asked_for = options.max_total_tokens > 0 || options.kv_cache_gib;
  int64_t num_pages = memory.max_pages;
  if (cache_memory.defined()) {
    num_pages =
        std::min(num_pages, (cache_memory.size_bytes() - memory.padding_bytes) / memory.page_bytes);
  } else if (!is_asked_for) {
    num_pages = std::min(num_pages, bytes_left(options, memory, device) / memory.page_bytes);
  }
  num_pages = std::max<int64_t>(num_pages, 0);
  if (device.is_cpu() && !cache_memory.defined() && is_asked_for && !tensor::is_planning())
    check_host_room(options, num_pages * memory.page_bytes);
  if (num_pages < memory.min_pages)
    throw Error(
        ErrorCode::kUsage,
        fmt::format("the KV cache holds {} tokens, fewer than one sequence of {} needs",
                    num_pages * options.page_tokens, memory.min_pages * options.page_tokens),
        fmt::format("raise the cache to at least {} tokens ({:.4g} GiB), or lower the maximum "
                    "sequence length",
                    memory.min_pages * options.page_tokens,
                    kRoundedUp * static_cast<double>(memory.min_cache_bytes()) / 0x1p30));
  return num_pages;
}

KvCache::KvCache(const model::ModelSpec& spec, tensor::Device device, tensor::DType dtype,
                 int64_t num_pages, int64_t page_tokens, tensor::Tensor memory) {
  // Bytes per layer: its keys and its values each start on an aligned address.
  std::vector<int64_t> layer_bytes;
  for (const model::LayerSpec& layer : spec.layers) {
    const auto bytes_of = [&](const auto& block) {
      return 2 * padded(num_pages * model::page_bytes(block, dtype, page_tokens) / 2);
    };
    layer_bytes.push_back(std::visit(bytes_of, layer.attention));
  }
  const int64_t bytes = std::accumulate(layer_bytes.begin(), layer_bytes.end(), int64_t{0});
  if (!memory.defined()) {
    buffer_ = tensor::Buffer(device, bytes, "KV cache");
    memory = buffer_.view(tensor::DType::kU8, {bytes});
  }
  bytes_ = memory.rows(0, bytes);
  int64_t begin = 0;
  for (size_t layer = 0; layer < layer_bytes.size(); ++layer) {
    const int64_t end = begin + layer_bytes[layer];
    const auto pages_of = [&](const auto& block) {
      return model::make_pages(block, dtype, bytes_.rows(begin, end), num_pages, page_tokens);
    };
    layers_.push_back(std::visit(pages_of, spec.layers[layer].attention));
    begin = end;
  }
}

}  // namespace slimexx::rollout
