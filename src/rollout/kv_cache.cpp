#include "rollout/kv_cache.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "slimexx/base/error.h"

namespace slimexx::rollout {
namespace {

constexpr int64_t kAlignment = 256;

int64_t padded(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

int64_t page_bytes(const model::ModelSpec& spec, tensor::DType dtype, int64_t page_tokens) {
  return 2 * spec.num_layers * page_tokens * spec.kv_size() * tensor::dtype_bytes(dtype);
}

int64_t useful_pages(const EngineOptions& options, int64_t bytes_per_page,
                     int64_t pages_per_sequence) {
  // Slots are numbered in 32 bits.
  const int64_t addressable = std::numeric_limits<int32_t>::max() / options.page_tokens;
  if (options.max_total_tokens > 0)
    return std::min(addressable, (options.max_total_tokens - 1) / options.page_tokens + 1);
  // More than twice what can run at once would only hold prefixes nobody asks for any more.
  double pages = 2.0 * static_cast<double>(options.max_running_requests) *
                 static_cast<double>(pages_per_sequence);
  if (options.kv_cache_gib)
    pages = std::min(pages, *options.kv_cache_gib * 0x1p30 / static_cast<double>(bytes_per_page));
  return static_cast<int64_t>(std::min(pages, static_cast<double>(addressable)));
}

namespace {

// What nothing else of a device's share takes, once the engine's workspace is there.
int64_t bytes_left(const EngineOptions& options, const EngineMemory& memory,
                   tensor::Device device) {
  if (device.is_cpu()) return int64_t{1} << 30;
  const tensor::DeviceMemory now = tensor::device_memory(device);
  const auto total = static_cast<double>(now.total_bytes);
  const auto share = static_cast<int64_t>(options.mem_fraction_static * total);
  return share - (now.total_bytes - now.free_bytes) - memory.workspace_bytes;
}

}  // namespace

int64_t count_pages(const EngineOptions& options, const EngineMemory& memory, tensor::Device device,
                    const tensor::Tensor& cache_memory) {
  const bool is_asked_for = options.max_total_tokens > 0 || options.kv_cache_gib;
  int64_t num_pages = memory.max_pages;
  if (cache_memory.defined()) {
    num_pages = std::min(num_pages, cache_memory.size_bytes() / memory.page_bytes);
  } else if (!is_asked_for) {
    num_pages = std::min(num_pages, bytes_left(options, memory, device) / memory.page_bytes);
  }
  num_pages = std::max<int64_t>(num_pages, 0);
  if (num_pages < memory.min_pages)
    throw Error(
        ErrorCode::kUsage,
        fmt::format("the KV cache holds {} tokens, fewer than one sequence of {} needs",
                    num_pages * options.page_tokens, memory.min_pages * options.page_tokens),
        fmt::format("raise the cache to at least {} tokens ({:.3f} GiB), or lower the "
                    "greatest sequence length",
                    memory.min_pages * options.page_tokens,
                    static_cast<double>(memory.min_cache_bytes()) / 0x1p30));
  return num_pages;
}

KvCache::KvCache(const model::ModelSpec& spec, tensor::Device device, tensor::DType dtype,
                 int64_t num_pages, int64_t page_tokens, tensor::Tensor memory) {
  const int64_t tensor_bytes =
      padded(num_pages * page_tokens * spec.kv_size() * tensor::dtype_bytes(dtype));
  const int64_t bytes = 2 * spec.num_layers * tensor_bytes;
  if (!memory.defined()) {
    buffer_ = tensor::Buffer(device, bytes, "KV cache");
    memory = buffer_.view(tensor::DType::kU8, {bytes});
  }
  bytes_ = memory.rows(0, bytes);
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    const auto view = [&](int64_t index) {
      return tensor::Tensor(bytes_.data<char>() + index * tensor_bytes, dtype, device,
                            {num_pages, page_tokens, spec.num_kv_heads, spec.head_dim});
    };
    layers_.push_back({.k = view(2 * layer), .v = view(2 * layer + 1)});
  }
}

}  // namespace slimexx::rollout
