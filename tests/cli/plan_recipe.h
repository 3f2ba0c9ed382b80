// Helpers to plan the recipes in configs/.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "run_binary.h"
#include "test_paths.h"

namespace slimexx::cli {

// Plans a recipe with the config.json of its model from the tree.
inline Finished plan(const std::string& recipe, const std::string& model,
                     const std::vector<std::string>& more = {}) {
  const std::string configs = test_data_path("../configs/"), folder = configs + "models/" + model;
  std::vector<std::string> words = {"plan", "--config", configs + recipe + ".yaml"};
  words.insert(words.end(), more.begin(), more.end());
  words.insert(words.end(), {"--set", "model.hf_checkpoint=" + folder, "model.ref_load=" + folder});
  return run_slimexx(words);
}

inline Json plan_qwen(const std::vector<std::string>& flags,
                      const std::vector<std::string>& settings) {
  std::vector<std::string> words = flags;
  words.insert(words.end(), {"--json", "--set", "rollout.num_rollout=1"});
  words.insert(words.end(), settings.begin(), settings.end());
  return Json::parse(plan("qwen3-4b", "Qwen3-4B", words).out);
}

inline double phase_seconds(const Json& json, const char* name) {
  for (const Json& phase : json.at("phases"))
    if (phase.at("name") == name) return phase.at("seconds").get<double>();
  return 0;
}

}  // namespace slimexx::cli
