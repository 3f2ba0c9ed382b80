#include "slimexx/rl/sample_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "rl/sample_metrics.h"
#include "slimexx/base/philox.h"
#include "slimexx/io/lines.h"

namespace slimexx::rl {
namespace {

Sample make_sample(int64_t index, int64_t response_length) {
  Sample s;
  s.group = index / 2, s.sample = index % 2;
  s.response_length = response_length;
  s.tokens.assign(static_cast<size_t>(response_length) + 2, 7);
  s.loss_mask.assign(static_cast<size_t>(response_length), 1);
  s.rollout_log_probs.assign(static_cast<size_t>(response_length), -0.1f);
  s.ref_log_probs.assign(static_cast<size_t>(response_length), -0.3f);
  s.reward = static_cast<double>(index);
  s.prompt_text = "p", s.response_text = "r\n2", s.label = "l", s.reason = "why";
  s.values = {{"acc", 0.25}};
  s.weight_version = 9;
  return s;
}

std::vector<Json> read_lines(const std::string& path) {
  io::LineReader reader(path);
  std::vector<Json> lines;
  for (Json line; io::next_json_object(reader, line);) lines.push_back(line);
  return lines;
}

class SampleFile : public testing::Test {
 protected:
  ~SampleFile() override { std::filesystem::remove(path_); }
  const std::string path_ = (std::filesystem::temp_directory_path() /
                             ("slimexx_" + std::to_string(getpid()) + "_" + sample_file_name(12)))
                                .string();
};

TEST_F(SampleFile, IsARolloutDumpWithMoreInIt) {
  EXPECT_EQ(sample_file_name(12), "rollout_000012.jsonl.zst");
  const std::vector<Sample> samples = {make_sample(0, 3), make_sample(1, 2)};
  write_sample_file(path_, 12, samples, {{0.5f, 0.5f, 0.5f}, {-0.1f, -0.1f}});
  const auto lines = read_lines(path_);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["rollout"], 12);
  EXPECT_EQ(lines[0]["prompt_length"], 2);
  EXPECT_EQ(lines[0]["values"]["acc"], 0.25);
  EXPECT_EQ(lines[0]["advantages"], Json({0.5, 0.5, 0.5}));
  EXPECT_EQ(lines[1]["advantages"], Json({-0.1, -0.1}));
  EXPECT_EQ(lines[1]["ref_log_probs"], Json({-0.3, -0.3}));
  EXPECT_EQ(lines[1]["weight_version"], 9);
  const auto loaded = load_rollout(path_);
  ASSERT_EQ(loaded.size(), 2u);
  EXPECT_EQ(loaded[1].tokens, samples[1].tokens);
  EXPECT_EQ(loaded[1].rollout_log_probs, samples[1].rollout_log_probs);
  EXPECT_EQ(loaded[1].reward, 1);
  EXPECT_FALSE(loaded[1].advantage) << "the estimator decides anew";
}

TEST_F(SampleFile, BeyondTheTokenLimitTextsStay) {
  const std::vector<Sample> samples = {make_sample(0, 3), make_sample(1, 2), make_sample(2, 1)};
  write_sample_file(path_, 0, samples, {{1, 1, 1}, {2, 2}, {3}}, 3);
  const auto lines = read_lines(path_);
  ASSERT_EQ(lines.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    for (const char* key :
         {"tokens", "loss_mask", "rollout_log_probs", "ref_log_probs", "advantages"})
      EXPECT_EQ(lines[i].contains(key), i == 0) << key << " of " << i;
    EXPECT_EQ(lines[i]["response"], "r\n2");
    EXPECT_EQ(lines[i]["response_length"], 3 - static_cast<int>(i));
    EXPECT_EQ(lines[i]["prompt_length"], 2);
    EXPECT_EQ(lines[i]["reward"], i);
  }
}

TEST(SampleMetrics, GraderValuesBecomeMeansUnderSafeNames) {
  std::vector<Sample> samples = {make_sample(0, 1), make_sample(1, 1), make_sample(2, 1)};
  samples[0].values = {{"acc", 1}, {"a/b c\x1b", 2}, {"", 5}};
  samples[1].values = {{"acc", 0}};
  samples[2].values = {{"acc", 9}};
  samples[2].grader_failed = true;
  for (int i = 0; i < 1000; ++i) samples[1].values["z" + std::to_string(i)] = 1;
  observe::MetricRow row;
  set_grader_values(samples, "reward/", row);
  set_grader_failed(samples, "rollout/", row);
  EXPECT_EQ(*row.find("reward/acc"), 0.5);
  EXPECT_EQ(*row.find("reward/a_b_c_"), 2);
  EXPECT_EQ(*row.find("rollout/grader_failed"), 1);
  EXPECT_EQ(row.values().size(), 65u);
}

TEST(SampleMetrics, FlatGroupsAndRepetition) {
  std::vector<Sample> samples;
  for (int i = 0; i < 8; ++i) samples.push_back(make_sample(i, 1));
  const double rewards[] = {1, 1, 0, 1, -0.04, -0.04, 0, 7};
  for (size_t i = 0; i < 8; ++i) samples[i].reward = rewards[i];
  samples[7].grader_failed = true;  // its group is one sample of reward 0
  samples[0].response_text = std::string(20000, 'x');
  PhiloxStream random(1, 2);
  for (int i = 0; i < 20000; ++i)
    samples[1].response_text += static_cast<char>('a' + random.next_below(26));
  samples[2].response_text = std::string(9000, 'x');
  observe::MetricRow row;
  set_zero_std(samples, "rollout/", row);
  set_repetition(samples, "rollout/", row);
  EXPECT_EQ(*row.find("rollout/zero_std/frac"), 0.75);
  EXPECT_EQ(*row.find("rollout/zero_std/count_1.0"), 1);
  EXPECT_EQ(*row.find("rollout/zero_std/count_0.0"), 2);
  EXPECT_EQ(row.find("rollout/zero_std/count_-0.0"), nullptr);
  EXPECT_EQ(*row.find("rollout/repetition_frac"), 1.0 / 8);
}

}  // namespace
}  // namespace slimexx::rl
