// Compares the specs read from config.json, with and without optional keys, with those of
// transformers 5.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "slimexx/base/error.h"
#include "slimexx/base/json.h"
#include "slimexx/model/families.h"
#include "test_paths.h"

namespace slimexx::model {
namespace {

const std::string kPath = test_data_path("model/config/read_spec_test.jsonl");

Json facts(const ModelSpec& s) {
  const char* scalings[] = {"none", "linear", "llama3", "yarn"};
  const auto& attention = std::get<GqaSpec>(s.layer(0).attention);
  const auto& mlp = std::get<DenseMlpSpec>(s.layer(0).mlp);
  return {{"family", s.family},
          {"num_kv_heads", attention.num_kv_heads},
          {"head_dim", attention.head_dim},
          {"rms_norm_eps", s.rms_norm_eps},
          {"tied", s.tied_embeddings},
          {"qkv_bias", attention.qkv_bias},
          {"o_bias", attention.o_bias},
          {"mlp_bias", mlp.bias},
          {"rotary_dim", s.rope.rotary_dim},
          {"theta", s.rope.theta},
          {"scaling", scalings[static_cast<int>(s.rope.scaling)]},
          {"factor", s.rope.factor},
          {"low_freq_factor", s.rope.low_freq_factor},
          {"high_freq_factor", s.rope.high_freq_factor},
          {"original_max_positions", s.rope.original_max_positions}};
}

// The first line is the base configuration. Each case overlays "set" and removes the keys of
// "remove".
std::vector<Json> read_cases() {
  std::ifstream file(kPath);
  std::vector<Json> cases;
  for (std::string line; std::getline(file, line);) cases.push_back(parse_json(line, kPath));
  return cases;
}

Json make_config(Json config, const Json& c) {
  for (const auto& [key, value] : c["set"].items()) config[key] = value;
  if (!c.contains("remove")) return config;
  for (const Json& key : c["remove"]) {
    EXPECT_TRUE(config.contains(key.get<std::string>())) << c["name"] << " removes " << key;
    config.erase(key.get<std::string>());
  }
  return config;
}

void expect_refusal(const Json& config, const Json& c) {
  try {
    read_model_spec(config, "config.json");
    ADD_FAILURE() << c["name"] << " is taken";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.code(), ErrorCode::kInput) << c["name"];
    EXPECT_NE(text.find(c["error"].get<std::string>()), std::string::npos)
        << c["name"] << ": " << text;
  }
}

TEST(ReadSpec, CasesFile) {
  const std::vector<Json> lines = read_cases();
  ASSERT_GE(lines.size(), 60u);
  for (auto it = lines.begin() + 1; it != lines.end(); ++it) {
    const Json& c = *it;
    const Json config = make_config(lines[0], c);
    if (c.contains("error")) {
      expect_refusal(config, c);
      continue;
    }
    const Json got = facts(read_model_spec(config, "config.json"));
    ASSERT_FALSE(c["expect"].empty()) << c["name"];
    for (const auto& [key, value] : c["expect"].items())
      EXPECT_EQ(got.at(key), value) << c["name"] << ": " << key;
  }
}

}  // namespace
}  // namespace slimexx::model
