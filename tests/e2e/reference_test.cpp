// Tests KL terms with a reference that is a separate model: the logged KL equals the one computed
// from `score`.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "e2e/small_run.h"
#include "slimexx/base/file.h"

namespace slimexx::e2e {
namespace {

struct Reference {
  std::string name;     // for test names
  std::string changes;  // to the policy's config.json
};
void PrintTo(const Reference& reference, std::ostream* out) { *out << reference.name; }

class ReferenceModel : public testing::TestWithParam<Reference> {
 protected:
  void SetUp() override {
    make_checkpoint(folder_, "models/llama");
    make_prompts(folder_);
  }
  std::vector<std::string> arguments(const std::vector<std::string>& more) const {
    std::vector<std::string> settings = {
        "model.ref_load=" + (folder_ / "reference"),
        "rl.use_kl_loss=true",
        "rl.kl_loss_coef=0.01",
        "rl.kl_loss_type=k1",
        "rollout.num_rollout=1",
        "debug.save_rollout=" + (folder_ / "made"),
    };
    settings.insert(settings.end(), more.begin(), more.end());
    return train_arguments(folder_, folder_ / "run", settings);
  }
  const Folder folder_;
};

// Log-probs of all samples' responses under the model in `directory`.
std::vector<std::vector<double>> score_responses(const Folder& folder, const std::string& directory,
                                                 const std::vector<Json>& samples) {
  std::string lines;
  for (const Json& sample : samples) lines += Json{{"tokens", sample.at("tokens")}}.dump() + "\n";
  const std::string out = folder / "scores.jsonl";
  const Finished f = run_slimexx(0, {"score", "--hf-checkpoint", directory, "--input",
                                     folder.put("to_score.jsonl", lines), "--output", out});
  EXPECT_EQ(f.status, 0) << f.text();
  std::vector<std::vector<double>> responses;
  for (const Json& row : read_rows(out)) {
    const auto all = row.at("logprobs").get<std::vector<double>>();
    const auto length = samples[responses.size()].at("response_length").get<std::ptrdiff_t>();
    responses.emplace_back(all.end() - length, all.end());
  }
  return responses;
}

TEST_P(ReferenceModel, KlIsTheDifferenceOfTwoScores) {
  make_checkpoint(folder_, "models/llama", GetParam().changes, "reference", 6);
  const Finished f = run_slimexx(0, arguments({}));
  ASSERT_EQ(f.status, 0) << f.text();
  const auto samples = read_rows(folder_ / "made/rollout_000000.jsonl");
  ASSERT_EQ(samples.size(), 16u);
  const auto policy = score_responses(folder_, folder_ / "model", samples);
  const auto reference = score_responses(folder_, folder_ / "reference", samples);
  double kl = 0;  // k1, mean over each sample's tokens, then over samples
  for (size_t i = 0; i < samples.size(); ++i) {
    double sum = 0;
    for (size_t t = 0; t < policy[i].size(); ++t) sum += policy[i][t] - reference[i][t];
    kl += sum / static_cast<double>(policy[i].size()) / static_cast<double>(samples.size());
  }
  ASSERT_GT(std::abs(kl), 1e-3) << "the models are too much alike to tell";
  const Json row = read_rows(folder_ / "run/metrics.jsonl").at(0);
  EXPECT_NEAR(number(row, "train/kl_loss"), kl, 1e-6 * std::abs(kl) + 1e-6);
  EXPECT_EQ(number(row, "train/ref_kl"), number(row, "train/kl_loss"));
}

// The KL in the reward is logged too, as the mean over all tokens.
TEST_P(ReferenceModel, KlInTheRewardIsLogged) {
  make_checkpoint(folder_, "models/llama", GetParam().changes, "reference", 6);
  const Finished f = run_slimexx(
      0, arguments({"rl.use_kl_loss=false", "rl.kl_loss_coef=0", "rl.kl_coef=0.1",
                    "rl.advantage_estimator=reinforce_plus_plus", "rl.normalize_advantages=true"}));
  ASSERT_EQ(f.status, 0) << f.text();
  const auto samples = read_rows(folder_ / "made/rollout_000000.jsonl");
  const auto policy = score_responses(folder_, folder_ / "model", samples);
  const auto reference = score_responses(folder_, folder_ / "reference", samples);
  double sum = 0, tokens = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    for (size_t t = 0; t < policy[i].size(); ++t) sum += policy[i][t] - reference[i][t];
    tokens += static_cast<double>(policy[i].size());
  }
  const double kl = sum / tokens;
  const Json row = read_rows(folder_ / "run/metrics.jsonl").at(0);
  EXPECT_NEAR(number(row, "rollout/kl"), kl, 1e-6 * std::abs(kl) + 1e-6);
  EXPECT_EQ(number(row, "train/ref_kl"), number(row, "rollout/kl"));
}

// With coefficient 0 the reference is used every log_ref_kl_interval rollouts and does not change
// the training.
TEST_P(ReferenceModel, IsOnlyLoggedWhereNothingWeighsIt) {
  make_checkpoint(folder_, "models/llama", GetParam().changes, "reference", 6);
  std::vector<std::vector<Json>> rows;
  std::vector<std::string> weights;
  for (const std::string interval : {"1", "2", "0"}) {
    const std::string run = folder_ / ("run_" + interval);
    const Finished f = run_slimexx(
        0, train_arguments(folder_, run,
                           {"model.ref_load=" + (folder_ / "reference"), "rl.use_kl_loss=true",
                            "rl.kl_loss_coef=0", "rl.kl_loss_type=k1", "rollout.num_rollout=3",
                            "rl.log_ref_kl_interval=" + interval, "optimizer.lr=0.01",
                            "checkpoint.save_hf=" + run + "/hf"}));
    ASSERT_EQ(f.status, 0) << f.text();
    rows.push_back(read_rows(run + "/metrics.jsonl"));
    ASSERT_EQ(rows.back().size(), 3u);
    weights.push_back(read_text_file(run + "/hf/model.safetensors"));
  }
  for (size_t rollout = 0; rollout < 3; ++rollout) {
    ASSERT_TRUE(rows[0][rollout].contains("train/kl_loss")) << rollout;
    EXPECT_EQ(rows[1][rollout].contains("train/kl_loss"), rollout % 2 == 0) << rollout;
    if (rollout % 2 == 0) {
      EXPECT_EQ(number(rows[1][rollout], "train/kl_loss"),
                number(rows[0][rollout], "train/kl_loss"));
    }
    EXPECT_FALSE(rows[2][rollout].contains("train/kl_loss")) << rollout;
  }
  EXPECT_EQ(weights[1] == weights[0], true);
  EXPECT_EQ(weights[2] == weights[0], true);
}

INSTANTIATE_TEST_SUITE_P(
    Architectures, ReferenceModel,
    testing::Values(Reference{"the_same", "{}"},
                    Reference{
                        "rope_theta",
                        R"({"rope_parameters": {"rope_theta": 700, "rope_type": "default"}})"},
                    Reference{"deeper", R"({"num_hidden_layers": 4})"},
                    Reference{"shallower", R"({"num_hidden_layers": 1})"},
                    Reference{"wider", R"({"hidden_size": 48, "intermediate_size": 72})"},
                    Reference{"heads", R"({"num_attention_heads": 2, "num_key_value_heads": 1})"}),
    [](const auto& instance) { return instance.param.name; });

class BadReference : public ReferenceModel {};

TEST_P(BadReference, IsRefusedAtTheStart) {
  make_checkpoint(folder_, "models/llama", GetParam().changes, "reference", 6);
  const Finished f = run_slimexx(0, arguments({}));
  EXPECT_EQ(f.status, 2) << f.text();
  EXPECT_NE(f.err.find("the reference"), std::string::npos) << f.text();
  EXPECT_NE(f.err.find(folder_ / "reference"), std::string::npos) << f.text();
}

INSTANTIATE_TEST_SUITE_P(Architectures, BadReference,
                         testing::Values(Reference{"another_vocabulary", R"({"vocab_size": 336})"},
                                         Reference{"fewer_positions",
                                                   R"({"max_position_embeddings": 64})"}),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace slimexx::e2e
