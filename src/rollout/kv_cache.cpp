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

int64_t count_pages(const EngineOptions& options, int64_t bytes_per_page,
                    int64_t max_sequence_tokens) {
  const auto pages_for = [&](int64_t tokens) { return (tokens - 1) / options.page_tokens + 1; };
  const int64_t pages_per_sequence = pages_for(max_sequence_tokens);
  // Slots are numbered in 32 bits.
  const int64_t addressable = std::numeric_limits<int32_t>::max() / options.page_tokens;
  int64_t num_pages;
  if (options.max_total_tokens > 0) {
    num_pages = std::min(options.max_total_tokens, int64_t{1} << 40) / options.page_tokens +
                (options.max_total_tokens % options.page_tokens != 0);
  } else {
    // More than twice what can run at once would only hold prefixes nobody asks for any more.
    const double useful = 2.0 * static_cast<double>(options.max_running_requests) *
                          static_cast<double>(pages_per_sequence);
    const double affordable = options.kv_cache_gib * 0x1p30 / static_cast<double>(bytes_per_page);
    num_pages = static_cast<int64_t>(std::min({useful, affordable, 0x1p40}));
  }
  num_pages = std::min(num_pages, addressable);
  if (num_pages < pages_per_sequence)
    throw Error(
        ErrorCode::kUsage,
        fmt::format("the KV cache holds {} tokens, fewer than one sequence of {} needs",
                    num_pages * options.page_tokens, max_sequence_tokens),
        fmt::format("raise the cache to at least {} tokens ({:.3f} GiB), or lower the greatest "
                    "sequence length",
                    pages_per_sequence * options.page_tokens,
                    static_cast<double>(pages_per_sequence * bytes_per_page) / 0x1p30));
  return num_pages;
}

KvCache::KvCache(const model::ModelSpec& spec, tensor::Device device, tensor::DType dtype,
                 int64_t num_pages, int64_t page_tokens) {
  const int64_t tensor_bytes =
      padded(num_pages * page_tokens * spec.kv_size() * tensor::dtype_bytes(dtype));
  buffer_ = tensor::Buffer(device, 2 * spec.num_layers * tensor_bytes, "KV cache");
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    const auto view = [&](int64_t index) {
      return buffer_.view(dtype, {num_pages, page_tokens, spec.num_kv_heads, spec.head_dim},
                          index * tensor_bytes);
    };
    layers_.push_back({.k = view(2 * layer), .v = view(2 * layer + 1)});
  }
}

}  // namespace slimexx::rollout
