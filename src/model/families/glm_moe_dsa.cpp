// GLM-5, 5.1 and 5.2: latent attention over the keys that indexers select, and the experts of
// GLM-4.5.
#include <fmt/format.h>

#include "model/config/config_reader.h"

namespace slimexx::model {

ModelSpec read_glm_moe_dsa_spec(const Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  // transformers rotates interleaved pairs whatever these keys say, but inference engines obey
  // them.
  for (const char* key : {"rope_interleave", "indexer_rope_interleave"})
    if (!reader.flag(key, true))
      reader.fail(std::string("\"") + key + "\" is false: not supported in this family",
                  "remove it if the model was trained with transformers, which ignores it");
  if (reader.has("num_experts") && reader.size("num_experts") != reader.size("n_routed_experts"))
    reader.fail(fmt::format("num_experts ({}) and n_routed_experts ({}) mean the same, but differ",
                            reader.size("num_experts"), reader.size("n_routed_experts")),
                "fix the wrong one, or leave num_experts out");
  ModelSpec spec = reader.read_latent("glm_moe_dsa", {.rms_norm_eps = 1e-5,
                                                      .layer_type = "indexed_attention",
                                                      .max_positions = 202752,
                                                      .q_rank = 2048});
  reader.read_sigmoid_experts(spec, {.num_dense_layers = 3, .scaling_factor = 2.5});
  reader.read_indexers(spec);
  return spec;
}

}  // namespace slimexx::model
