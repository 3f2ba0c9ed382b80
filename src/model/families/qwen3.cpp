// Qwen3 dense: Llama with RMSNorm on every query and key head.
#include "model/config/config_reader.h"

namespace slimexx::model {

ModelSpec read_qwen3_spec(const Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  ModelSpec spec =
      reader.read_common("qwen3", {.num_kv_heads = 32, .head_dim = 128, .max_window_layers = 28});
  const bool attention_bias = reader.flag("attention_bias", false);
  for (LayerSpec& layer : spec.layers) {
    auto& attention = std::get<GqaSpec>(layer.attention);
    attention.qkv_bias = attention.o_bias = attention_bias;
    attention.qk_norm = true;
  }
  return spec;
}

}  // namespace slimexx::model
