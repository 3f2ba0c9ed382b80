// Small random models of every family, with the same bf16 weights on whatever device they live.
#pragma once
#include <string>
#include <vector>

#include "slimexx/base/philox.h"
#include "slimexx/model/transformer.h"
#include "slimexx/ops/rotary.h"

namespace slimexx::model {

struct ModelSizes {
  int64_t vocab_size = 0, hidden_size = 0, intermediate_size = 0, head_dim = 0, max_positions = 0;
};

inline std::vector<std::string> dense_families() { return {"llama", "qwen2", "qwen3", "glm4"}; }

inline ModelSpec random_spec(const std::string& family, const ModelSizes& sizes,
                             double initializer_range) {
  ModelSpec spec;
  spec.family = family;
  spec.vocab_size = sizes.vocab_size;
  spec.hidden_size = sizes.hidden_size;
  spec.num_layers = 2;
  spec.intermediate_size = sizes.intermediate_size;
  spec.num_heads = 4;
  spec.num_kv_heads = 2;
  spec.head_dim = sizes.head_dim;
  spec.max_positions = sizes.max_positions;
  spec.rope.rotary_dim = spec.head_dim;
  spec.initializer_range = initializer_range;
  spec.layers.assign(static_cast<size_t>(spec.num_layers), {});
  if (family == "qwen2") spec.qkv_bias = true;
  if (family == "qwen3") spec.qk_norm = spec.tied_embeddings = true;
  if (family == "glm4") {
    spec.sandwich_norms = spec.fused_gate_up = spec.qkv_bias = true;
    spec.rope.style = ops::RotaryStyle::kInterleaved;
    spec.rope.rotary_dim = spec.head_dim / 2;
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
