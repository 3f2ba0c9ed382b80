#include "slimexx/sample/sample.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "slimexx/base/error.h"
#include "slimexx/base/philox.h"
#include "test_paths.h"

namespace slimexx::sample {
namespace {

class SampleDump : public testing::Test {
 protected:
  SampleDump()
      : directory_(std::filesystem::temp_directory_path() /
                   ("slimexx_dump_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(directory_);
  }
  ~SampleDump() override { std::filesystem::remove_all(directory_); }
  std::string path(const std::string& name) const { return (directory_ / name).string(); }
  std::filesystem::path directory_;
};

Sample full_sample() {
  Sample s;
  s.group = int64_t{1} << 40, s.sample = 1, s.rollout = 7;
  s.tokens = {0, 151551, 2147483647, 7, 8};
  s.response_length = 3;
  s.loss_mask = {1, 0, 1};
  s.rollout_log_probs = {-0.1f, -1e-30f, -std::numeric_limits<float>::max()};
  s.old_log_probs = {-0.0f, std::numeric_limits<float>::denorm_min(), -3.4028233e38f};
  s.ref_log_probs = {-1.0f / 3, -16777217.0f, std::nextafter(-1.0f, 0.0f)};
  s.advantage = 0.1 + 0.2;
  s.reward = -1.0 / 3;
  s.status = SampleStatus::kTruncated;
  s.weight_versions = {{1, 40}, {3, 41}};
  s.temperature = 0.7f;
  s.prompt_text =
      "Gr\xC3\xB6\xC3\x9F"
      "e?\n\"quoted\"";
  s.response_text = std::string("a\0b", 3) + "\xF0\x9F\x98\x80";
  s.label = "4/3", s.reason = "not equal";
  s.prediction = "1.3";
  s.values = {{"acc", 0.1 + 0.2}, {"a \"name\"/", -1e300}};
  s.metadata = R"({"z":1,"a":[true,null,2.5],"nested":{"k":"v"}})";
  return s;
}

void expect_equal(const Sample& a, const Sample& b) {
  EXPECT_EQ(a.group, b.group);
  EXPECT_EQ(a.sample, b.sample);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.response_length, b.response_length);
  EXPECT_EQ(a.loss_mask, b.loss_mask);
  EXPECT_EQ(a.rollout_log_probs, b.rollout_log_probs);
  EXPECT_EQ(a.old_log_probs, b.old_log_probs);
  EXPECT_EQ(a.ref_log_probs, b.ref_log_probs);
  EXPECT_EQ(a.reward, b.reward);
  EXPECT_EQ(a.status, b.status);
  EXPECT_EQ(a.rollout, b.rollout);
  EXPECT_EQ(a.weight_versions, b.weight_versions);
  EXPECT_EQ(a.temperature, b.temperature);
  EXPECT_EQ(a.prompt_text, b.prompt_text);
  EXPECT_EQ(a.response_text, b.response_text);
  EXPECT_EQ(a.label, b.label);
  EXPECT_EQ(a.reason, b.reason);
  EXPECT_EQ(a.metadata, b.metadata);
  EXPECT_EQ(a.prediction, b.prediction);
  EXPECT_EQ(a.values, b.values);
  EXPECT_EQ(a.grader_failed, b.grader_failed);
}

TEST_F(SampleDump, RoundTripIsExact) {
  std::vector<Sample> samples = {full_sample(), full_sample()};
  samples[1].sample = 2;
  samples[1].advantage.reset();
  samples[1].rollout_log_probs.clear();
  samples[1].old_log_probs.clear();
  samples[1].ref_log_probs.clear();
  samples[1].metadata.clear();
  samples[1].status = SampleStatus::kAborted;
  samples[1].temperature = 0;
  samples[1].values.clear(), samples[1].prediction.clear();
  samples[1].grader_failed = true;
  samples[1].loss_mask = {0, 0, 0};
  for (const std::string name : {"dump.jsonl", "dump.jsonl.zst"}) {
    save_rollout(path(name), samples);
    const auto loaded = load_rollout(path(name));
    ASSERT_EQ(loaded.size(), samples.size());
    for (size_t i = 0; i < loaded.size(); ++i) {
      expect_equal(loaded[i], samples[i]);
      EXPECT_EQ(loaded[i].advantage, samples[i].advantage);
    }
  }
  EXPECT_TRUE(std::signbit(load_rollout(path("dump.jsonl"))[0].old_log_probs[0]));
}

TEST_F(SampleDump, RandomFloatsComeBackToTheBit) {
  PhiloxStream random(3, 1);
  Sample s = full_sample();
  s.response_length = 4000;
  s.tokens.assign(4001, 5);
  s.loss_mask.assign(4000, 1);
  s.rollout_log_probs.clear(), s.old_log_probs.clear(), s.ref_log_probs.clear();
  s.weight_versions = {{4000, 1}};
  while (s.rollout_log_probs.size() < 4000) {
    const float value = std::bit_cast<float>(random.next_word());
    if (std::isfinite(value)) s.rollout_log_probs.push_back(value);
  }
  save_rollout(path("floats.jsonl"), {s});
  EXPECT_EQ(load_rollout(path("floats.jsonl"))[0].rollout_log_probs, s.rollout_log_probs);
}

// The dump has null for non-finite values, and training refuses such a dump.
TEST_F(SampleDump, NonFiniteLogProbsDoNotBecomeNumbers) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    Sample s = full_sample();
    s.rollout_log_probs[1] = bad;
    EXPECT_TRUE(sample_to_json(s)["rollout_log_probs"][1].is_null());
    save_rollout(path("nan.jsonl"), {s});
    EXPECT_THROW(load_rollout(path("nan.jsonl")), Error);
  }
}

TEST_F(SampleDump, InvalidUtf8IsReplacedNotThrown) {
  Sample s = full_sample();
  s.response_text = "cut \xE4\xBD";
  save_rollout(path("utf8.jsonl"), {s});
  EXPECT_EQ(load_rollout(path("utf8.jsonl"))[0].response_text, "cut \xEF\xBF\xBD");
}

TEST_F(SampleDump, FewFieldsAreEnough) {
  std::ofstream(path("small.jsonl"))
      << R"({"group":0,"sample":0,"tokens":[1,2,3],"response_length":2,"reward":1})"
      << "\n\n"
      << R"({"group":0,"sample":1,"tokens":[1,2],"response_length":1,"advantage":-2,"label":5})";
  const auto samples = load_rollout(path("small.jsonl"));
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].loss_mask, (std::vector<uint8_t>{1, 1}));
  EXPECT_EQ(samples[0].status, SampleStatus::kCompleted);
  EXPECT_FALSE(samples[0].advantage.has_value());
  EXPECT_TRUE(samples[0].rollout_log_probs.empty());
  EXPECT_EQ(samples[0].prompt_length(), 1);
  EXPECT_EQ(samples[0].num_trained_tokens(), 2);
  EXPECT_EQ(samples[1].advantage, -2);
  EXPECT_EQ(samples[1].label, "5");
}

TEST_F(SampleDump, WeightVersionsOfOldAndNewDumpsAreRead) {
  const auto read = [&](const std::string& field) {
    std::ofstream(path("versions.jsonl"))
        << R"({"group":0,"sample":0,"tokens":[1,2,3],"response_length":2,"reward":1,)" << field
        << "}";
    return load_rollout(path("versions.jsonl"))[0].weight_versions;
  };
  EXPECT_EQ(read(R"("weight_version":9)"), (std::vector<WeightSpan>{{2, 9}}));
  EXPECT_EQ(read(R"("weight_versions":[[1,8],[2,9]])"), (std::vector<WeightSpan>{{1, 8}, {2, 9}}));
  EXPECT_TRUE(read(R"("label":"")").empty());
}

TEST_F(SampleDump, SampleWithoutAGradeIsMasked) {
  std::ofstream(path("failed.jsonl"))
      << R"({"group":0,"sample":0,"tokens":[1,2,3],"response_length":2,"reward":1,"grader_failed":true})";
  const Sample s = load_rollout(path("failed.jsonl"))[0];
  EXPECT_TRUE(s.grader_failed);
  EXPECT_EQ(s.num_trained_tokens(), 0);
}

// Every case is refused with its place and the words that the case lists.
TEST_F(SampleDump, BadLinesAreRefused) {
  std::ifstream cases(test_data_path("sample/sample_test.jsonl"));
  std::string line;
  int count = 0;
  while (std::getline(cases, line)) {
    const Json c = parse_json(line, "sample_test.jsonl");
    SCOPED_TRACE(c["name"].get<std::string>());
    const std::string good =
        R"({"group":0,"sample":0,"tokens":[1,2,3],"response_length":2,"reward":1})";
    std::ofstream(path("bad.jsonl")) << good << "\n" << c["line"].get<std::string>() << "\n";
    try {
      load_rollout(path("bad.jsonl"));
      ADD_FAILURE() << "accepted";
    } catch (const Error& e) {
      const std::string text = e.what();
      EXPECT_EQ(e.code(), ErrorCode::kInput);
      EXPECT_NE(text.find(path("bad.jsonl") + ":2"), std::string::npos) << text;
      for (const auto& part : c["has"])
        EXPECT_NE(text.find(part.get<std::string>()), std::string::npos) << text;
    }
    ++count;
  }
  EXPECT_GT(count, 20);
}

TEST_F(SampleDump, EmptyAndMissingFilesAreRefused) {
  std::ofstream(path("empty.jsonl")) << "\n\n";
  EXPECT_THROW(load_rollout(path("empty.jsonl")), Error);
  EXPECT_THROW(load_rollout(path("missing.jsonl")), Error);
}

TEST(SampleExchange, BytesComeBackExactly) {
  std::vector<Sample> samples = {full_sample(), Sample{}, full_sample()};
  samples[0].cached_tokens = 99;
  samples[2].grader_failed = true;
  samples[0].rollout_log_probs[0] = std::numeric_limits<float>::infinity();
  const auto loaded = unpack_samples(pack_samples(samples));
  ASSERT_EQ(loaded.size(), 3u);
  for (size_t i = 0; i < 3; ++i) expect_equal(loaded[i], samples[i]);
  EXPECT_EQ(loaded[0].cached_tokens, 99);
  EXPECT_TRUE(unpack_samples(pack_samples({})).empty());
}

}  // namespace
}  // namespace slimexx::sample
