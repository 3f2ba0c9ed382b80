// Problems for attention on the device, with bf16 values: the cases of the CPU tests, and further
// sizes for the device.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ops/cuda/cuda_testing.h"
#include "ops/op_cases.h"
#include "slimexx/ops/attention.h"

namespace slimexx::ops::testing {

inline constexpr uint64_t kAttentionSeed = 11;

inline std::vector<cases::AttentionCase> attention_cases() {
  std::vector<cases::AttentionCase> all = cases::attention_values();
  for (const auto& c : cases::attention_gradients()) all.push_back(c);
  const std::vector<cases::AttentionCase> of_the_device = {
      {{1}, 1, 1, 64},           {{5, 0, 3}, 4, 2, 64},     {{64, 65, 1}, 2, 2, 128},
      {{130, 7}, 6, 2, 128},     {{128, 129, 2}, 8, 8, 64}, {{1100, 40}, 4, 1, 128},
      {{17, 300, 33}, 32, 2, 64}};
  all.insert(all.end(), of_the_device.begin(), of_the_device.end());
  return all;
}
inline bool is_served(const cases::AttentionCase& c) { return c.dim == 64 || c.dim == 128; }
inline std::string name_of(const cases::AttentionCase& c) {
  std::string name = std::to_string(c.query_heads) + "/" + std::to_string(c.kv_heads) +
                     " heads of " + std::to_string(c.dim) + ", lengths";
  for (const int32_t length : c.lengths) name += " " + std::to_string(length);
  return name + ", seed " + std::to_string(kAttentionSeed);
}

struct AttentionProblem {
  cases::AttentionCase shape;
  std::vector<int32_t> cu{0};
  Array q, k, v, dout;
  float scale;

  explicit AttentionProblem(const cases::AttentionCase& c) : shape(c) {
    for (const int32_t length : c.lengths) cu.push_back(cu.back() + length);
    q = random_bf16({cu.back(), c.query_heads, c.dim}, kAttentionSeed);
    k = random_bf16({cu.back(), c.kv_heads, c.dim}, kAttentionSeed + 1);
    v = random_bf16({cu.back(), c.kv_heads, c.dim}, kAttentionSeed + 2);
    dout = random_bf16({cu.back(), c.query_heads, c.dim}, kAttentionSeed + 3);
    scale = 1.0f / std::sqrt(static_cast<float>(c.dim));
  }
  AttentionLayout on_cpu() const { return {cu, {}, {}, 0}; }
  Array output() const { return Array({cu.back(), shape.query_heads, shape.dim}); }
  Array statistics() const { return Array({cu.back(), shape.query_heads}); }
};

// A packed layout with its lengths also on the device.
struct PackedLayout {
  std::vector<int32_t> cu;
  OnDevice device_cu;
  explicit PackedLayout(std::vector<int32_t> cu_in)
      : cu(std::move(cu_in)), device_cu(integers_on_device(cu)) {}
  AttentionLayout layout() const {
    AttentionLayout l{cu, {}, {}, 0};
    l.device_cu_seqlens = device_cu;
    return l;
  }
};

}  // namespace slimexx::ops::testing
