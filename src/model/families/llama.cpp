// Llama 2 and 3: pre-norm, half-split rotary, optional biases, llama3 rope scaling.
#include "model/config/config_reader.h"

namespace slimexx::model {

ModelSpec read_llama_spec(const Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  ModelSpec spec = reader.read_common("llama", {.max_positions = 2048});
  const bool attention_bias = reader.flag("attention_bias", false);
  const bool mlp_bias = reader.flag("mlp_bias", false);
  for (LayerSpec& layer : spec.layers) {
    auto& attention = std::get<GqaSpec>(layer.attention);
    attention.qkv_bias = attention.o_bias = attention_bias;
    std::get<DenseMlpSpec>(layer.mlp).bias = mlp_bias;
  }
  return spec;
}

}  // namespace slimexx::model
