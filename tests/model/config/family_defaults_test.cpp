// Compares the family defaults for missing keys with the models that transformers builds
// (scripts/golden/make_family_defaults.py).
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "model/rotary_table.h"
#include "slimexx/base/json.h"
#include "slimexx/model/families.h"
#include "test_paths.h"

namespace slimexx::model {
namespace {

const std::string kDefaults = test_data_path("model/config/family_defaults.jsonl");
constexpr double kFactTolerance = 1e-6;  // relative: frequencies are f32

void add_grouped_facts(const GqaSpec& s, Json& facts) {
  facts["head_dim"] = s.head_dim;
  facts["num_kv_heads"] = s.num_kv_heads;
  facts["qkv_bias"] = s.qkv_bias;
  facts["o_bias"] = s.o_bias;
  facts["qk_norm"] = s.qk_norm;
  facts["score_scale"] = 1 / std::sqrt(static_cast<double>(s.head_dim));
}

void add_latent_facts(const ModelSpec& spec, const MlaSpec& s, Json& facts) {
  facts["q_rank"] = s.q_rank;
  facts["o_bias"] = s.bias;
  facts["interleaved"] = spec.rope.style == ops::RotaryStyle::kInterleaved;
  facts["score_scale"] = s.scale_factor / std::sqrt(static_cast<double>(s.head_dim()));
  if (!s.indexer) return;
  facts["selected"] = s.top_k;
  facts["index_heads"] = s.indexer->num_heads;
  facts["index_dim"] = s.indexer->head_dim;
  facts["full_layers"] = Json::array();
  for (int64_t i = 0; i < spec.num_layers(); ++i)
    if (std::get<MlaSpec>(spec.layer(i).attention).indexer) facts["full_layers"].push_back(i);
}

void add_expert_facts(const ModelSpec& spec, Json& facts) {
  facts["sparse_layers"] = Json::array();
  for (int64_t i = 0; i < spec.num_layers(); ++i) {
    const auto* moe = std::get_if<MoeMlpSpec>(&spec.layer(i).mlp);
    if (moe == nullptr) continue;
    facts["sparse_layers"].push_back(i);
    facts["top_k"] = moe->router.top_k;
    facts["normalized"] = moe->router.normalized;
    facts["groups"] = moe->router.num_groups;
    facts["kept_groups"] = moe->router.kept_groups;
    facts["scaling_factor"] = moe->router.scaling_factor;
    facts["shared"] = moe->shared ? moe->shared->intermediate_size : 0;
  }
}

Json default_facts(const ModelSpec& spec) {
  Json facts = {{"tied", spec.tied_embeddings},
                {"max_positions", spec.max_positions},
                {"rms_norm_eps", spec.rms_norm_eps},
                {"frequencies", inverse_frequencies(spec.rope)},
                {"table_scale", spec.rope.table_scale}};
  add_expert_facts(spec, facts);
  const AttentionSpec& attention = spec.layer(0).attention;
  if (const auto* grouped = std::get_if<GqaSpec>(&attention))
    add_grouped_facts(*grouped, facts);
  else
    add_latent_facts(spec, std::get<MlaSpec>(attention), facts);
  return facts;
}

void expect_fact(const Json& got, const Json& wanted, const std::string& what) {
  if (wanted.is_number_float()) {
    const double value = wanted.get<double>();
    EXPECT_NEAR(got.get<double>(), value, kFactTolerance * std::abs(value)) << what;
  } else if (wanted.is_array()) {
    ASSERT_EQ(got.size(), wanted.size()) << what;
    for (size_t i = 0; i < wanted.size(); ++i)
      expect_fact(got[i], wanted[i], what + " " + std::to_string(i));
  } else {
    EXPECT_EQ(got, wanted) << what;
  }
}

TEST(FamilyDefaults, AreThoseOfTransformers) {
  std::ifstream file(kDefaults);
  size_t num_cases = 0;
  for (std::string line; std::getline(file, line); ++num_cases) {
    const Json c = parse_json(line, kDefaults);
    const auto name = c["name"].get<std::string>();
    const Json facts = default_facts(read_model_spec(c["config"], "config.json of " + name));
    for (const auto& [key, value] : c["expect"].items()) {
      const std::string what = name + ": " + key;
      ASSERT_TRUE(facts.contains(key)) << what;
      expect_fact(facts[key], value, what);
    }
  }
  EXPECT_GT(num_cases, 200u);
}

}  // namespace
}  // namespace slimexx::model
