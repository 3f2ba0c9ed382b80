// Tests reading experts, latent and sparse attention from config.json: published configurations,
// with parameters counted from their tensor shapes, and changes that are refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "slimexx/base/error.h"
#include "slimexx/base/json.h"
#include "slimexx/model/describe.h"
#include "slimexx/model/families.h"
#include "test_paths.h"

namespace slimexx::model {
namespace {

const std::string kExpertCases = test_data_path("model/config/expert_spec_test.jsonl");

bool has_indexer(const LayerSpec& layer) {
  return std::get<MlaSpec>(layer.attention).indexer.has_value();
}

void add_facts_of_indexers(const ModelSpec& s, Json& facts) {
  facts["full_layers"] = Json::array();
  for (int64_t i = 0; i < s.num_layers(); ++i)
    if (has_indexer(s.layer(i))) facts["full_layers"].push_back(i);
  facts["full_mtp_layers"] =
      std::ranges::count_if(s.mtp, [](const MtpSpec& mtp) { return has_indexer(mtp.layer); });
  const auto& first = std::get<MlaSpec>(s.layer(0).attention);
  facts["selected"] = first.top_k;
  facts["index_heads"] = first.indexer->num_heads;
  facts["index_dim"] = first.indexer->head_dim;
}

Json facts_of_experts(const ModelSpec& s) {
  int64_t dense_layers = 0;
  MoeMlpSpec experts;
  for (const LayerSpec& layer : s.layers) {
    if (const auto* moe = std::get_if<MoeMlpSpec>(&layer.mlp)) experts = *moe;
    dense_layers += std::holds_alternative<DenseMlpSpec>(layer.mlp);
  }
  const ParameterCounts counts = count_parameters(s);
  Json facts = {{"parameters", counts.total},
                {"without_correction_biases", counts.total - counts.correction_biases},
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
    if (latent->top_k > 0) add_facts_of_indexers(s, facts);
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
  EXPECT_EQ(num_cases, 57);
}

}  // namespace
}  // namespace slimexx::model
