#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "run_binary.h"
#include "slimexx/io/safetensors.h"

namespace slimexx::cli {
namespace {

constexpr double kTolerance = 2e-4;  // log-probs against transformers in f32

struct Oracle {
  explicit Oracle(const std::string& model) : file(golden_model(model) + "/oracle.safetensors") {
    const io::TensorEntry* entry = file.find("input_ids");
    batch = entry->shape[0];
    length = entry->shape[1];
    ids.resize(static_cast<size_t>(batch * length));
    file.read(*entry, 0, batch * length, ids.data());
    log_probs = floats("logprobs");
    entropies = floats("entropy");
  }
  std::vector<float> floats(const std::string& name) const {
    const io::TensorEntry* entry = file.find(name);
    std::vector<float> values(static_cast<size_t>(entry->num_elements()));
    file.read(*entry, 0, entry->num_elements(), values.data());
    return values;
  }
  std::string rows() const {
    std::string text;
    for (int64_t b = 0; b < batch; ++b) {
      const auto begin = ids.begin() + b * length;
      text += Json{{"tokens", std::vector<int64_t>(begin, begin + length)}}.dump() + "\n";
    }
    return text;
  }
  io::SafetensorsFile file;
  int64_t batch = 0, length = 0;
  std::vector<int64_t> ids;
  std::vector<float> log_probs, entropies;  // [batch, length - 1]
};

// Three layers on two stages: the hint names flags of score.
TEST(ScoreOnGrids, UnevenStagesAreFlags) {
  const Oracle oracle("llama_odd");
  const Folder folder;
  const std::string input = folder.put("in.jsonl", oracle.rows());
  std::vector<std::string> arguments = {"score",
                                        "--hf-checkpoint",
                                        golden_model("llama_odd"),
                                        "--input",
                                        input,
                                        "--thread-ranks",
                                        "2",
                                        "--pipeline-model-parallel-size",
                                        "2"};
  const Finished refused = run_slimexx(arguments);
  EXPECT_EQ(refused.status, 2) << refused.err;
  EXPECT_NE(refused.err.find("at: --pipeline-model-parallel-size"), std::string::npos)
      << refused.err;
  EXPECT_NE(refused.err.find("set --decoder-first-pipeline-num-layers to 1"), std::string::npos)
      << refused.err;
  arguments.insert(arguments.end(), {"--decoder-first-pipeline-num-layers", "1"});
  const Finished f = run_slimexx(arguments);
  ASSERT_EQ(f.status, 0) << f.err;
  const auto rows = parse_lines(f.out);
  ASSERT_EQ(std::ssize(rows), oracle.batch);
  EXPECT_NEAR(rows[0]["logprobs"][0].get<double>(), oracle.log_probs[0], kTolerance);
}

class Score : public testing::TestWithParam<std::string> {};

TEST_P(Score, AgreesWithTheReference) {
  const Oracle oracle(GetParam());
  const Folder folder;
  const std::string input = folder.put("in.jsonl", oracle.rows());
  const Finished f = run_slimexx({"score", "--hf-checkpoint", golden_model(GetParam()), "--input",
                                  input, "--output", folder / "out.jsonl"});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(f.out, "");
  const auto rows = parse_lines(read_bytes(folder / "out.jsonl"));
  ASSERT_EQ(std::ssize(rows), oracle.batch);
  for (size_t b = 0; b < rows.size(); ++b) {
    ASSERT_EQ(std::ssize(rows[b]["logprobs"]), oracle.length - 1);
    ASSERT_EQ(std::ssize(rows[b]["entropy"]), oracle.length - 1);
    for (size_t t = 0; t < rows[b]["logprobs"].size(); ++t) {
      const size_t at = b * static_cast<size_t>(oracle.length - 1) + t;
      EXPECT_NEAR(rows[b]["logprobs"][t].get<double>(), oracle.log_probs[at], kTolerance)
          << "row " << b << " token " << t;
      EXPECT_NEAR(rows[b]["entropy"][t].get<double>(), oracle.entropies[at], kTolerance)
          << "row " << b << " token " << t;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Score, testing::ValuesIn(golden_models()),
                         [](const auto& instance) { return instance.param; });

std::string score_text(const std::string& rows, const std::vector<std::string>& more = {}) {
  const Folder folder;
  std::vector<std::string> arguments = {"score", "--hf-checkpoint", golden_model("llama"),
                                        "--input", folder.put("in.jsonl", rows)};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Finished f = run_slimexx(arguments);
  EXPECT_EQ(f.status, 0) << f.err;
  return f.out;
}

// A sequence's results do not depend on the other sequences of its pack; a prefix has the same
// results.
TEST(ScoreRows, DoNotDependOnTheirNeighbours) {
  const std::string a = "{\"tokens\":[3,1,4,1,5]}\n", b = "{\"tokens\":[9,2,6]}\n";
  const std::string together = score_text(a + "\n" + b);  // the blank line is skipped
  EXPECT_EQ(together, score_text(a) + score_text(b));
  const Json whole = parse_lines(score_text(a))[0];
  const Json prefix = parse_lines(score_text("{\"tokens\":[3,1,4]}\n"))[0];
  for (size_t t = 0; t < 2; ++t) EXPECT_EQ(whole["logprobs"][t], prefix["logprobs"][t]);
}

TEST(ScoreRows, ComeInOrderWhateverTheirLength) {
  std::string rows, alone;
  for (int length : {300, 2, 40, 500, 3, 450, 510, 500, 500, 500, 500, 500, 7}) {
    Json tokens = Json::array();
    for (int i = 0; i < length; ++i) tokens.push_back((i * 7 + length) % 96);
    const std::string row = Json{{"tokens", tokens}}.dump() + "\n";
    rows += row;
    alone += score_text(row);
  }
  EXPECT_EQ(score_text(rows), alone);  // more than one forward's worth of tokens
}

TEST(ScoreRows, TemperatureDividesTheLogits) {
  const std::string row = "{\"tokens\":[3,1,4,1,5]}\n";
  EXPECT_EQ(score_text(row), score_text(row, {"--temperature", "1"}));
  // Softmax of logits / T becomes uniform for large T: log-probs approach -log(vocabulary).
  const Json hot = parse_lines(score_text(row, {"--temperature", "1e6"}))[0];
  for (const Json& value : hot["logprobs"]) EXPECT_NEAR(value.get<double>(), -std::log(96.0), 1e-4);
}

}  // namespace
}  // namespace slimexx::cli
