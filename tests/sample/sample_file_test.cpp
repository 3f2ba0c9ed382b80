#include "slimexx/sample/sample_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "slimexx/io/lines.h"

namespace slimexx::sample {
namespace {

Sample make_sample(int64_t index, int64_t response_length) {
  Sample s;
  s.group = index / 2, s.sample = index % 2, s.rollout = 12;
  s.advantages.assign(static_cast<size_t>(response_length), 0.5f - static_cast<float>(index));
  s.response_length = response_length;
  s.tokens.assign(static_cast<size_t>(response_length) + 2, 7);
  s.loss_mask.assign(static_cast<size_t>(response_length), 1);
  s.rollout_log_probs.assign(static_cast<size_t>(response_length), -0.1f);
  s.ref_log_probs.assign(static_cast<size_t>(response_length), -0.3f);
  s.reward = static_cast<double>(index);
  s.prompt_text = "p", s.response_text = "r\n2", s.label = "l", s.reason = "why";
  s.values = {{"acc", 0.25}};
  s.weight_versions = {{response_length, 9}};
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
  write_sample_file(path_, samples);
  const auto lines = read_lines(path_);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["rollout"], 12);
  EXPECT_EQ(lines[0]["prompt_length"], 2);
  EXPECT_EQ(lines[0]["values"]["acc"], 0.25);
  EXPECT_EQ(lines[0]["advantages"], Json({0.5, 0.5, 0.5}));
  EXPECT_EQ(lines[1]["advantages"], Json({-0.5, -0.5}));
  EXPECT_EQ(lines[1]["ref_log_probs"], Json({-0.3, -0.3}));
  EXPECT_EQ(lines[1]["weight_versions"], Json::parse("[[2, 9]]"));
  const auto loaded = load_rollout(path_);
  ASSERT_EQ(loaded.size(), 2u);
  EXPECT_EQ(loaded[1].tokens, samples[1].tokens);
  EXPECT_EQ(loaded[1].rollout_log_probs, samples[1].rollout_log_probs);
  EXPECT_EQ(loaded[1].reward, 1);
  EXPECT_EQ(loaded[1].weight_versions, samples[1].weight_versions);
  EXPECT_FALSE(loaded[1].advantage || !loaded[1].advantages.empty())
      << "the estimator decides anew";
}

TEST_F(SampleFile, BeyondTheTokenLimitTextsStay) {
  const std::vector<Sample> samples = {make_sample(0, 3), make_sample(1, 2), make_sample(2, 1)};
  write_sample_file(path_, samples, 3);
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

}  // namespace
}  // namespace slimexx::sample
