// DeepSeek-V3 and R1, Moonlight: latent attention, experts limited to groups.
#include "model/config/config_reader.h"

namespace slimexx::model {

ModelSpec read_deepseek_v3_spec(const Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  ModelSpec spec = reader.read_latent(
      "deepseek_v3", {.rms_norm_eps = 1e-6, .max_positions = 4096, .q_rank = 1536});
  reader.read_sigmoid_experts(
      spec, {.num_dense_layers = 3, .scaling_factor = 2.5, .num_groups = 8, .kept_groups = 4});
  return spec;
}

}  // namespace slimexx::model
