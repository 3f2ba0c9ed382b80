#include "rollout/engine_case.h"

namespace slimexx::rollout {

std::vector<EngineCase> engine_cases() {
  std::vector<EngineCase> cases;
  for (const std::string& family : model::all_families())
    cases.push_back({family, {}, tiny_spec(family), {1, 4, 16}});
  // Selects more keys than a block has, with two indexers.
  model::ModelSpec sparse = tiny_spec("glm_moe_dsa", 5);
  model::add_indexers(sparse, 67);
  cases.push_back({"glm_moe_dsa_67_keys", {}, sparse, {1, 4, 16}});
  return cases;
}

RankSetting rank_setting() {
  return {.device = {},
          .smallest_page = 4,
          .num_prompts = 4,
          .spec_of = [](const std::string& family, int64_t n) {
            model::ModelSpec spec = tiny_spec(family, n);
            spec.vocab_size = 64;
            return spec;
          }};
}

}  // namespace slimexx::rollout
