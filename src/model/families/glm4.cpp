// GLM-4-0414 and GLM-Z1: norms before and after attention and MLP, interleaved rotary on a part of
// the head, gate and up fused on disk.
#include <cmath>

#include "../config_reader.h"

namespace slimexx::model {

ModelSpec read_glm4_spec(const Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  ModelSpec spec = reader.read_common("glm4");
  spec.qkv_bias = reader.flag("attention_bias", false);
  spec.sandwich_norms = true;
  spec.fused_gate_up = true;
  spec.rope.style = ops::RotaryStyle::kInterleaved;
  spec.rope.rotary_dim = static_cast<int64_t>(
      std::floor(static_cast<double>(spec.head_dim) * reader.partial_rotary_factor(0.5)));
  return spec;
}

}  // namespace slimexx::model
