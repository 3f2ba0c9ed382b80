// Qwen2 and Qwen2.5: Llama with biases on queries, keys and values.
#include "model/config/config_reader.h"

namespace slimexx::model {

ModelSpec read_qwen2_spec(const Json& config, const std::string& where) {
  ModelSpec spec = ConfigReader(config, where)
                       .read_common("qwen2", {.num_kv_heads = 32, .max_window_layers = 28});
  for (LayerSpec& layer : spec.layers) std::get<GqaSpec>(layer.attention).qkv_bias = true;
  return spec;
}

}  // namespace slimexx::model
