#include "slimexx/ops/cache_rows.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/float8_values.h"
#include "slimexx/base/check.h"
#include "slimexx/base/thread_pool.h"

namespace slimexx::ops::cpu {
namespace {

constexpr int64_t kRowGrain = 16;

// Rounds a group of x[n] in place and returns its scale. If `bytes` is not null, the e4m3 values
// are stored there.
float round_group(float* x, int64_t n, uint8_t* bytes) {
  const std::array<float, 256>& value_of = f8_values();
  const tensor::F8RowScale s = tensor::f8_key_scale(f8_largest(x, n));
  for (int64_t i = 0; i < n; ++i) {
    const uint8_t value = tensor::f32_to_f8_e4m3(x[i] * s.factor);
    if (bytes != nullptr) bytes[i] = value;
    x[i] = value_of[value] * s.scale;
  }
  return s.scale;
}

// The slot of token t, or -1: the token is not stored.
int64_t find_slot(const Tensor& pages, const Tensor& slots, int64_t t) {
  if (!pages.defined()) return -1;
  const int64_t slot = slots.i32()[t];
  SLX_CHECK(slot < pages.dim(0) * pages.dim(1), "slot {} of token {}", slot, t);
  return slot;
}

}  // namespace

void round_keys(Tensor keys, const CacheRows& pages, Tensor slots) {
  const int64_t heads = keys.dim(1), dim = keys.dim(2);
  parallel_for(keys.dim(0), kRowGrain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t slot = find_slot(pages.rows, slots, t);
      for (int64_t h = 0; h < heads; ++h) {
        float* key = keys.f32() + t * keys.stride(0) + h * dim;
        if (slot < 0) {
          round_group(key, dim, nullptr);
          continue;
        }
        const int64_t page_tokens = pages.rows.dim(1);
        const float scale =
            round_group(key, dim, pages.rows.data<uint8_t>() + (slot * heads + h) * dim);
        const int64_t at = (slot / page_tokens * heads + h) * page_tokens + slot % page_tokens;
        pages.scales.data<uint16_t>()[at] = tensor::f32_to_bf16(scale);
      }
    }
  });
}

void round_latent_rows(Tensor latent, int64_t rank, Tensor pages, Tensor slots) {
  const tensor::F8LatentRow form = tensor::latent_f8_row(rank, latent.dim(1) - rank, sizeof(float));
  parallel_for(latent.dim(0), kRowGrain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t slot = find_slot(pages, slots, t);
      float* row = latent.f32() + t * latent.stride(0);
      uint8_t* bytes = slot < 0 ? nullptr : pages.data<uint8_t>() + slot * form.bytes;
      if (bytes != nullptr) std::memset(bytes, 0, static_cast<size_t>(form.bytes));
      for (int64_t g = 0; g < form.groups; ++g) {
        const int64_t first = g * tensor::kF8LatentGroup;
        const float scale = round_group(row + first, std::min(tensor::kF8LatentGroup, rank - first),
                                        bytes == nullptr ? nullptr : bytes + first);
        if (bytes != nullptr) std::memcpy(bytes + form.scales_at + g * 4, &scale, sizeof(scale));
      }
      if (bytes != nullptr)
        std::memcpy(bytes + form.rotary_at, row + rank,
                    static_cast<size_t>(form.rotary_width) * sizeof(float));
    }
  });
}

}  // namespace slimexx::ops::cpu
