// Random models with sizes that the device's kernels support.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "model/random_model.h"

namespace slimexx::model {

inline tensor::Device test_device() { return {tensor::DeviceType::kCuda, 0}; }

inline std::vector<std::string> device_expert_families() {
  return {"qwen3_moe", "glm4_moe", "glm4_moe_lite", "deepseek_v3", "glm_moe_dsa"};
}
inline std::vector<std::string> device_families() {
  std::vector<std::string> all = dense_families();
  for (const std::string& family : device_expert_families()) all.push_back(family);
  return all;
}

// Latent rows of 72 + 32 and heads of 72: multiples of 8, as the kernels need.
inline ModelSpec with_device_widths(ModelSpec spec) {
  for (LayerSpec& layer : spec.layers)
    if (auto* latent = std::get_if<MlaSpec>(&layer.attention)) {
      latent->kv_rank = latent->value_dim = 72;
      if (latent->indexer) latent->indexer->head_dim = latent->rope_dim + 8;
    }
  return spec;
}

inline ModelSpec device_spec(const std::string& family, double initializer_range) {
  // llama's vocabulary of 261 is odd: it needs another matmul kernel, and logit rows need padding.
  // Experts have 104 elements, wide heads 96 and 72.
  return with_device_widths(random_spec(family,
                                        {.vocab_size = family == "llama" ? 261 : 264,
                                         .hidden_size = 128,
                                         .intermediate_size = 208,
                                         .head_dim = 64,
                                         .max_positions = 256},
                                        initializer_range));
}

// Four ranks divide heads, experts and widths into shards of whole 16 bytes; two KV heads.
inline ModelSpec device_spec_of_ranks(const std::string& family, int64_t num_layers,
                                      double initializer_range) {
  return with_device_widths(random_spec(family,
                                        {.vocab_size = 320,
                                         .hidden_size = 128,
                                         .intermediate_size = 256,
                                         .head_dim = 64,
                                         .max_positions = 256,
                                         .num_layers = num_layers},
                                        initializer_range));
}

// `spec` with another top_k for layers with sparse attention.
inline ModelSpec with_keys(ModelSpec spec, int64_t top_k) {
  for (LayerSpec& layer : spec.layers)
    if (auto* latent = std::get_if<MlaSpec>(&layer.attention);
        latent != nullptr && latent->top_k > 0)
      latent->top_k = top_k;
  return spec;
}

// bf16 rounding can flip the choice between nearly equal experts or keys. With this spec all
// experts and keys are chosen, weighted by their scores.
inline ModelSpec without_choices(ModelSpec spec) {
  for (LayerSpec& layer : spec.layers) {
    if (auto* experts = std::get_if<MoeMlpSpec>(&layer.mlp)) {
      experts->router.top_k = experts->router.num_experts;
      experts->router.kept_groups = experts->router.num_groups;
    }
  }
  return with_keys(spec, spec.max_positions);
}

}  // namespace slimexx::model
