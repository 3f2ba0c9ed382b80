// Random models of sizes that the device's kernels serve.
#pragma once
#include "model/random_model.h"

namespace slimexx::model {

inline tensor::Device test_device() { return {tensor::DeviceType::kCuda, 0}; }

inline std::vector<std::string> device_families() { return dense_families(); }

inline ModelSpec device_spec(const std::string& family, double initializer_range) {
  // One is a multiple of nothing: another product, and rows of logits that need padding.
  return random_spec(family,
                     {.vocab_size = family == "llama" ? 261 : 264,
                      .hidden_size = 128,
                      .intermediate_size = 200,
                      .head_dim = 64,
                      .max_positions = 256},
                     initializer_range);
}

}  // namespace slimexx::model
