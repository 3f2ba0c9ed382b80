#include "model/rotary_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "slimexx/base/json.h"
#include "test_paths.h"

namespace slimexx::model {
namespace {

RopeSpec make_rope(const Json& c) {
  const Json& r = c.at("rope");
  RopeSpec rope;
  rope.rotary_dim = c.at("head_dim");
  rope.theta = r.at("rope_theta");
  rope.factor = r.value("factor", 1.0);
  const std::string type = r.at("rope_type");
  if (type == "linear") rope.scaling = RopeScaling::kLinear;
  if (type == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    rope.beta_fast = r.at("beta_fast");
    rope.beta_slow = r.at("beta_slow");
    rope.original_max_positions = r.at("original_max_position_embeddings");
  }
  if (type != "llama3") return rope;
  rope.scaling = RopeScaling::kLlama3;
  rope.low_freq_factor = r.at("low_freq_factor");
  rope.high_freq_factor = r.at("high_freq_factor");
  rope.original_max_positions = r.at("original_max_position_embeddings");
  return rope;
}

// The reference's pow is accurate to one ulp, ours is correctly rounded: nearly all frequencies
// have equal bits, the others differ by one or two ulps. If the power were not rounded before the
// division, a quarter of the frequencies would have other bits.
TEST(RotaryTable, FrequenciesHaveTheReferencesBits) {
  const std::string path = test_data_path("model/rotary_frequencies.jsonl");
  std::ifstream file(path);
  int64_t num_cases = 0, total = 0, equal = 0;
  for (std::string line; std::getline(file, line); ++num_cases) {
    const Json c = parse_json(line, path);
    const std::vector<float> expected = c.at("frequencies");
    const std::vector<float> got = inverse_frequencies(make_rope(c));
    ASSERT_EQ(got.size(), expected.size()) << line;
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_NEAR(got[i] / expected[i], 1, 3e-7) << c.at("rope") << " [" << i << "]";
      equal += got[i] == expected[i];
      ++total;
    }
  }
  EXPECT_EQ(num_cases, 8);
  EXPECT_GE(static_cast<double>(equal), 0.95 * static_cast<double>(total))
      << equal << " of " << total;
}

}  // namespace
}  // namespace slimexx::model
