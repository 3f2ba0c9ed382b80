// Random models of sizes that the device's kernels serve.
#pragma once
#include "model/random_model.h"

namespace slimexx::model {

inline tensor::Device test_device() { return {tensor::DeviceType::kCuda, 0}; }

inline std::vector<std::string> device_families() {
  std::vector<std::string> all = dense_families();
  all.insert(all.end(), {"qwen3_moe", "glm4_moe"});
  return all;
}

inline ModelSpec device_spec(const std::string& family, double initializer_range) {
  // One is a multiple of nothing: another product, and rows of logits that need padding. Experts of
  // 104 elements.
  return random_spec(family,
                     {.vocab_size = family == "llama" ? 261 : 264,
                      .hidden_size = 128,
                      .intermediate_size = 208,
                      .head_dim = 64,
                      .max_positions = 256},
                     initializer_range);
}

}  // namespace slimexx::model
