// GLM-4.5, 4.6 and 4.7: grouped-query attention with half-split rotary on a part of the head, dense
// layers first, then experts with one shared by all tokens.
#include "model/config/config_reader.h"

namespace slimexx::model {

ModelSpec read_glm4_moe_spec(const Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  ModelSpec spec = reader.read_common("glm4_moe", {.num_kv_heads = 8,
                                                   .rms_norm_eps = 1e-5,
                                                   .partial_rotary_factor = 0.5,
                                                   .max_positions = 131072});
  const bool attention_bias = reader.flag("attention_bias", false);
  const bool qk_norm = reader.flag("use_qk_norm", false);
  for (LayerSpec& layer : spec.layers) {
    auto& attention = std::get<GqaSpec>(layer.attention);
    attention.qkv_bias = attention_bias;
    attention.qk_norm = qk_norm;
  }
  reader.read_sigmoid_experts(spec, {});
  return spec;
}

}  // namespace slimexx::model
