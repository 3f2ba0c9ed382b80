#include "model/random_model_cuda.h"
#include "rollout/engine_case.h"

namespace slimexx::rollout {

std::vector<EngineCase> engine_cases() {
  std::vector<EngineCase> cases;
  for (const std::string& family : model::device_families())
    cases.push_back(
        {family, model::test_device(), model::device_spec(family, 0.12), {16, 32, 128}});
  // Selects more keys than a block has.
  cases.push_back({"glm_moe_dsa_67_keys",
                   model::test_device(),
                   model::with_keys(model::device_spec("glm_moe_dsa", 0.12), 67),
                   {16, 32, 128}});
  return cases;
}

RankSetting rank_setting() {
  return {.device = model::test_device(),
          .smallest_page = 16,
          .num_prompts = 7,
          .spec_of = [](const std::string& family, int64_t num_layers) {
            return model::device_spec_of_ranks(family, num_layers, 0.12);
          }};
}

}  // namespace slimexx::rollout
