// GLM-4-0414 and GLM-Z1: norms before and after attention and MLP, interleaved rotary on a part of
// the head, gate and up fused on disk.
#include "model/config/config_reader.h"
#include "slimexx/ops/rotary.h"

namespace slimexx::model {

ModelSpec read_glm4_spec(const Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  ModelSpec spec = reader.read_common("glm4", {.num_kv_heads = 2,
                                               .head_dim = 128,
                                               .rms_norm_eps = 1.5625e-7,
                                               .partial_rotary_factor = 0.5,
                                               .max_positions = 131072});
  const bool attention_bias = reader.flag("attention_bias", true);
  for (LayerSpec& layer : spec.layers) {
    std::get<GqaSpec>(layer.attention).qkv_bias = attention_bias;
    std::get<DenseMlpSpec>(layer.mlp).fused_gate_up = true;
    layer.sandwich_norms = true;
  }
  spec.rope.style = ops::RotaryStyle::kInterleaved;
  return spec;
}

}  // namespace slimexx::model
