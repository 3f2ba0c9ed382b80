// Small random models of every family, with the same bf16 weights on every device.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "slimexx/base/philox.h"
#include "slimexx/model/decoder.h"
#include "slimexx/ops/rotary.h"

namespace slimexx::model {

struct ModelSizes {
  int64_t vocab_size = 0, hidden_size = 0, intermediate_size = 0, head_dim = 0, max_positions = 0;
  int64_t num_layers = 2, num_heads = 4;
};

inline std::vector<std::string> dense_families() { return {"llama", "qwen2", "qwen3", "glm4"}; }

inline std::vector<std::string> expert_families() {
  return {"qwen3_moe", "glm4_moe", "glm4_moe_lite", "deepseek_v3", "glm_moe_dsa"};
}
inline std::vector<std::string> all_families() {
  std::vector<std::string> all = dense_families();
  for (const std::string& family : expert_families()) all.push_back(family);
  return all;
}

// Eight experts, two per token; DeepSeek has four groups, of which two are kept.
inline MoeMlpSpec random_experts(const std::string& family, const ModelSizes& sizes) {
  const bool is_softmax = family == "qwen3_moe", has_groups = family == "deepseek_v3";
  MoeMlpSpec experts{
      .hidden_size = sizes.hidden_size,
      .intermediate_size = sizes.intermediate_size / 2,
      .router = {.num_experts = 8,
                 .top_k = 2,
                 .score = is_softmax ? ops::RouterScore::kSoftmax : ops::RouterScore::kSigmoid,
                 .num_groups = has_groups ? 4 : 1,
                 .kept_groups = has_groups ? 2 : 1,
                 .scaling_factor = is_softmax ? 1.0f : 2.5f},
      .has_correction_bias = !is_softmax};
  if (!is_softmax)
    experts.shared = DenseMlpSpec{.hidden_size = sizes.hidden_size,
                                  .intermediate_size = experts.intermediate_size};
  return experts;
}

// DeepSeek computes queries directly from the input, like Moonlight.
inline MlaSpec random_latent(const std::string& family, const ModelSizes& sizes) {
  return {.hidden_size = sizes.hidden_size,
          .num_heads = sizes.num_heads,
          .q_rank = family == "deepseek_v3" ? 0 : sizes.hidden_size / 2,
          .kv_rank = sizes.hidden_size / 2 + 3,
          .nope_dim = sizes.head_dim,
          .rope_dim = sizes.head_dim / 2,
          .value_dim = sizes.head_dim + 1,
          .scale_factor = family == "deepseek_v3" ? 1.2 : 1.0};
}

// Every third layer selects keys; the two layers after it reuse the selection.
inline void add_indexers(ModelSpec& spec, int64_t top_k) {
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    auto& attention = std::get<MlaSpec>(spec.layers[i].attention);
    attention.top_k = top_k;
    attention.indexer.reset();
    if (i % 3 > 0) continue;
    attention.indexer = IndexerSpec{.hidden_size = spec.hidden_size,
                                    .q_rank = attention.q_rank,
                                    .num_heads = 3,
                                    .head_dim = attention.rope_dim + 5};
  }
}

inline ModelSpec random_spec(const std::string& family, const ModelSizes& sizes,
                             double initializer_range) {
  ModelSpec spec;
  spec.family = family;
  spec.vocab_size = sizes.vocab_size;
  spec.hidden_size = sizes.hidden_size;
  spec.max_positions = sizes.max_positions;
  spec.initializer_range = initializer_range;
  spec.rope.rotary_dim = sizes.head_dim;
  GqaSpec attention{.hidden_size = sizes.hidden_size,
                    .num_heads = sizes.num_heads,
                    .num_kv_heads = 2,
                    .head_dim = sizes.head_dim};
  DenseMlpSpec mlp{.hidden_size = sizes.hidden_size, .intermediate_size = sizes.intermediate_size};
  attention.qkv_bias = family == "qwen2" || family == "glm4";
  spec.tied_embeddings = family == "qwen3";
  attention.qk_norm = family == "qwen3" || family == "qwen3_moe" || family == "glm4_moe";
  if (family == "glm4") {
    mlp.fused_gate_up = true;
    spec.rope.style = ops::RotaryStyle::kInterleaved;
    spec.rope.rotary_dim = sizes.head_dim / 2;
  }
  spec.layers.assign(static_cast<size_t>(sizes.num_layers),
                     {.attention = attention, .mlp = mlp, .sandwich_norms = family == "glm4"});
  const std::vector<std::string> with_experts = expert_families();
  if (std::find(with_experts.begin(), with_experts.end(), family) == with_experts.end())
    return spec;
  const bool is_latent =
      family == "glm4_moe_lite" || family == "deepseek_v3" || family == "glm_moe_dsa";
  if (is_latent || family == "glm4_moe") spec.rope.rotary_dim = sizes.head_dim / 2;
  if (is_latent) spec.rope.style = ops::RotaryStyle::kInterleaved;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (is_latent) spec.layers[i].attention = random_latent(family, sizes);
    if (i > 0) spec.layers[i].mlp = random_experts(family, sizes);
  }
  if (family == "glm_moe_dsa") add_indexers(spec, 20);
  return spec;
}

struct RandomModel {
  ModelSpec spec;
  tensor::Device device;
  ParameterStore store;
  Decoder decoder;
  ModelParameters weights;

  RandomModel(const ModelSpec& spec_in, tensor::Device device_in, bool with_gradients,
              int64_t leaves = 1)
      : spec(spec_in),
        device(device_in),
        store(spec, device, with_gradients),
        decoder(spec, device, spec.max_positions, whole_model(spec), {}, leaves) {
    init_random_weights(store, spec, 5);
    PhiloxStream random(17, 4);
    for (const ParameterInfo& info : store.infos()) {
      std::vector<float> values = weight_values(info);
      for (float& value : values) {
        // Give norms and biases random values, because init sets them to one and zero.
        if (info.shape.size() == 1) value += 0.2f * static_cast<float>(random.next_normal());
        value = tensor::bf16_to_f32(tensor::f32_to_bf16(value));
      }
      store.write_weights(info, 0, values.data(), info.num_elements());
    }
    weights = bind_weights(store, spec);
  }
  std::vector<float> weight_values(const ParameterInfo& info) const {
    std::vector<float> values(static_cast<size_t>(info.num_elements()));
    store.read_weights(info, 0, values.data(), info.num_elements());
    return values;
  }
};

}  // namespace slimexx::model
