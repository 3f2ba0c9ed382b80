#include "rollout/engine_case.h"

namespace slimexx::rollout {

std::vector<EngineCase> engine_cases() {
  std::vector<EngineCase> cases;
  for (const std::string& family : model::all_families())
    cases.push_back({family, {}, tiny_spec(family), {1, 4, 16}});
  return cases;
}

}  // namespace slimexx::rollout
