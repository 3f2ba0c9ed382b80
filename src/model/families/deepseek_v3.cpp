// DeepSeek-V3 and R1, Moonlight: latent attention, experts limited to groups.
#include "../config_reader.h"

namespace slimexx::model {

ModelSpec read_deepseek_v3_spec(const Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  ModelSpec spec = reader.read_latent("deepseek_v3", {.rms_norm_eps = 1e-6});
  reader.read_sigmoid_experts(spec, 3);
  return spec;
}

}  // namespace slimexx::model
