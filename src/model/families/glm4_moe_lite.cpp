// GLM-4.7-Flash: latent attention, and the experts of GLM-4.5.
#include "model/config/config_reader.h"

namespace slimexx::model {

ModelSpec read_glm4_moe_lite_spec(const Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  ModelSpec spec = reader.read_latent(
      "glm4_moe_lite", {.rms_norm_eps = 1e-5, .max_positions = 202752, .q_rank = 768});
  reader.read_sigmoid_experts(spec, {.scaling_factor = 1.8});
  return spec;
}

}  // namespace slimexx::model
