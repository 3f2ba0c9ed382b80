// GLM-5, 5.1 and 5.2: latent attention over the keys that indexers select, and the experts of
// GLM-4.5.
#include "../config_reader.h"

namespace slimexx::model {

ModelSpec read_glm_moe_dsa_spec(const Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  ModelSpec spec = reader.read_latent(
      "glm_moe_dsa", {.rms_norm_eps = 1e-5, .layer_type = "deepseek_sparse_attention"});
  reader.read_sigmoid_experts(spec, 3);
  reader.read_indexers(spec);
  return spec;
}

}  // namespace slimexx::model
