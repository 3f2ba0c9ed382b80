// What config.json says of experts and latent attention: published configurations, whose parameters
// are counted by the shapes of their tensors, and changes that are refused.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "slimexx/base/error.h"
#include "slimexx/base/json.h"
#include "slimexx/model/families.h"
#include "test_paths.h"

namespace slimexx::model {
namespace {

const std::string kExpertCases = test_data_path("model/expert_spec_test.jsonl");

int64_t count_parameters(const ModelSpec& spec) {
  int64_t n = 0;
  for (const ParameterInfo& info : list_parameters(spec)) n += info.num_elements();
  return n;
}

Json facts_of_experts(const ModelSpec& s) {
  int64_t dense_layers = 0;
  MoeMlpSpec experts;
  for (const LayerSpec& layer : s.layers) {
    if (const auto* moe = std::get_if<MoeMlpSpec>(&layer.mlp)) experts = *moe;
    dense_layers += std::holds_alternative<DenseMlpSpec>(layer.mlp);
  }
  Json facts = {{"parameters", count_parameters(s)},
                {"mtp", s.mtp.size()},
                {"dense_layers", dense_layers},
                {"experts", experts.router.num_experts},
                {"top_k", experts.router.top_k},
                {"groups", experts.router.num_groups},
                {"kept_groups", experts.router.kept_groups},
                {"scaling_factor", experts.router.scaling_factor},
                {"bias", experts.has_correction_bias},
                {"shared", experts.shared ? experts.shared->intermediate_size : 0},
                {"rotary_dim", s.rope.rotary_dim},
                {"table_scale", s.rope.table_scale},
                {"scaling", s.rope.scaling == RopeScaling::kYarn ? "yarn" : "none"}};
  if (const auto* latent = std::get_if<MlaSpec>(&s.layer(0).attention)) {
    facts["q_rank"] = latent->q_rank;
    facts["score_scale"] =
        latent->scale_factor / std::sqrt(static_cast<double>(latent->head_dim()));
  }
  return facts;
}

void expect_facts(const Json& facts, const Json& c) {
  for (const auto& [key, value] : c["expect"].items()) {
    ASSERT_TRUE(facts.contains(key)) << c["name"] << ": " << key;
    if (value.is_number_float()) {
      EXPECT_NEAR(facts[key].get<double>(), value.get<double>(), 1e-7) << c["name"] << ": " << key;
    } else {
      EXPECT_EQ(facts[key], value) << c["name"] << ": " << key;
    }
  }
}

TEST(ExpertSpec, CasesFile) {
  std::ifstream file(kExpertCases);
  int64_t num_cases = 0;
  for (std::string line; std::getline(file, line); ++num_cases) {
    const Json c = parse_json(line, kExpertCases);
    if (c.contains("expect")) {
      expect_facts(facts_of_experts(read_model_spec(c["config"], "config.json")), c);
      continue;
    }
    try {
      read_model_spec(c["config"], "config.json");
      ADD_FAILURE() << c["name"] << " is taken";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(c["error"].get<std::string>()), std::string::npos)
          << c["name"] << ": " << error.what();
    }
  }
  EXPECT_EQ(num_cases, 25);
}

}  // namespace
}  // namespace slimexx::model
