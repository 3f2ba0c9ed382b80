#include "run_binary.h"
#include "test_paths.h"

#include <nlohmann/json.hpp>
#include <sstream>

namespace slimexx::cli {

Finished run_slimexx(const std::vector<std::string>& arguments) {
  return e2e::run_slimexx(0, arguments);
}

Finished run_slimexx_ranks(int num_ranks, const std::vector<std::string>& arguments) {
  return e2e::run_slimexx(num_ranks, arguments);
}

std::string golden_model(const std::string& name) {
  return test_data_path("golden/models/") + name;
}

const std::vector<std::string>& golden_models() {
  static const std::vector<std::string> names = {"glm4_no_bias",
                                                 "llama",
                                                 "llama3_scaled_tied_biased",
                                                 "qwen2_untied",
                                                 "qwen3_tied_mqa",
                                                 "deepseek_v3_odd",
                                                 "glm4_moe_lite_odd",
                                                 "glm4_moe_lite_values_odd",
                                                 "glm4_moe_odd",
                                                 "glm4_odd",
                                                 "glm_moe_dsa_odd",
                                                 "llama_odd",
                                                 "qwen2_odd",
                                                 "qwen3_moe_odd",
                                                 "qwen3_odd"};
  return names;
}

std::vector<Json> parse_lines(const std::string& text) {
  std::vector<Json> rows;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) rows.push_back(parse_json(line, "a result"));
  return rows;
}

}  // namespace slimexx::cli
