// Small random models of every family, of sizes that the device's kernels serve, with the same
// bf16 weights on whatever device they live.
#pragma once
#include <string>
#include <vector>

#include "slimexx/base/philox.h"
#include "slimexx/model/transformer.h"

namespace slimexx::model {

inline tensor::Device test_device() { return {tensor::DeviceType::kCuda, 0}; }

inline std::vector<std::string> device_families() { return {"llama", "qwen2", "qwen3", "glm4"}; }

inline ModelSpec device_spec(const std::string& family, double initializer_range) {
  ModelSpec spec;
  spec.family = family;
  spec.vocab_size = 264;
  spec.hidden_size = 128;
  spec.num_layers = 2;
  spec.intermediate_size = 200;
  spec.num_heads = 4;
  spec.num_kv_heads = 2;
  spec.head_dim = 64;
  spec.max_positions = 256;
  spec.rope.rotary_dim = 64;
  spec.initializer_range = initializer_range;
  spec.layers.assign(static_cast<size_t>(spec.num_layers), {});
  // No multiple of anything: another product, and rows of logits that need padding.
  if (family == "llama") spec.vocab_size = 261;
  if (family == "qwen2") spec.qkv_bias = true;
  if (family == "qwen3") spec.qk_norm = spec.tied_embeddings = true;
  if (family == "glm4") {
    spec.sandwich_norms = spec.fused_gate_up = spec.qkv_bias = true;
    spec.rope.style = ops::RotaryStyle::kInterleaved;
    spec.rope.rotary_dim = 32;
  }
  return spec;
}

struct RandomModel {
  ModelSpec spec;
  tensor::Device device;
  ParameterStore store;
  Transformer transformer;
  ModelParameters weights;

  RandomModel(const ModelSpec& spec_in, tensor::Device device_in, bool with_gradients)
      : spec(spec_in),
        device(device_in),
        store(spec, device, with_gradients),
        transformer(spec, device, spec.max_positions) {
    init_random_weights(store, spec, 5);
    PhiloxStream random(17, 4);
    for (const ParameterInfo& info : store.infos()) {
      std::vector<float> values = weight_values(info);
      for (float& value : values) {
        // Norms and biases of their own, which init leaves at one and zero.
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
