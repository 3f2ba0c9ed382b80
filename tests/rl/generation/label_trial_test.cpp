#include "rl/generation/label_trial.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "slimexx/base/error.h"

namespace slimexx::rl {
namespace {

class LabelTrial : public testing::Test {
 protected:
  ~LabelTrial() override { std::filesystem::remove(path_); }

  LabelTrials run(const std::string& rows) {
    std::ofstream(path_) << rows;
    data::PromptOptions options;
    options.prompt_data = path_ + slice_;
    return try_labels(data::PromptSet::load(options, nullptr, nullptr), reward_);
  }

  static std::string row(const std::string& label) {
    return "{\"tokens\": [1], \"label\": " + label + "}\n";
  }

  Error error_of(const LabelTrials& trials) {
    try {
      check_labels(trials, reward_);
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "no error";
    return Error(ErrorCode::kUsage, "none");
  }

  std::string path_ = (std::filesystem::temp_directory_path() /
                       ("slimexx_labels_" + std::to_string(getpid()) + ".jsonl"))
                          .string();
  std::string slice_;
  reward::RewardOptions reward_ = [] {
    reward::RewardOptions options;
    options.rm_type = "dapo";
    return options;
  }();
};

TEST_F(LabelTrial, NamesTheRowsThatCannotBeRead) {
  const LabelTrials trials = run(row("1") + "\n" + row("\"2.5\"") + row("[3, \"three\"]") +
                                 row("null") + row("\"x\"") + row("\"y\""));
  EXPECT_EQ(trials.num_rows, 6);
  EXPECT_EQ(trials.num_tried, 6);
  EXPECT_EQ(trials.num_unread, 4);
  ASSERT_EQ(trials.examples.size(), 3u);
  EXPECT_EQ(trials.examples[0].where, path_ + ":3");
  EXPECT_EQ(trials.examples[1].where, path_ + ":5");
  EXPECT_NE(trials.examples[0].why.find("2.5"), std::string::npos);
  const std::string text = describe_labels(trials);
  EXPECT_EQ(text.find("4 of 6 labels (66.7 %) cannot be read by dapo: " + path_ + ":3: "), 0u)
      << text;
  check_labels(trials, reward_);  // no error: some can be read
  reward_.on_failure = "stop";
  const Error error = error_of(trials);
  EXPECT_EQ(error.code(), ErrorCode::kInput);
  EXPECT_EQ(error.where(), path_ + ":3");
}

TEST_F(LabelTrial, RefusesASetOfWhichNothingCanBeRead) {
  slice_ = "@[1:3]";
  const Error error = error_of(run(row("1") + row("\"x\"") + row("\"y\"") + row("2")));
  EXPECT_EQ(error.code(), ErrorCode::kInput);
  EXPECT_EQ(error.where(), path_ + ":2");
  EXPECT_NE(error.message().find("any of the 2 labels"), std::string::npos) << error.message();
}

TEST_F(LabelTrial, LeavesAloneWhatNoGraderOfOursReads) {
  reward_.rm_type = "random";
  const LabelTrials trials = run(row("\"x\"") + row("null"));
  EXPECT_EQ(trials.num_tried, 0);
  check_labels(trials, reward_);
  EXPECT_EQ(describe_labels(trials), "");
  const LabelTrials mixed =
      run("{\"tokens\": [1], \"label\": \"x\", \"rm_type\": \"dapo\"}\n" + row("\"x\""));
  EXPECT_EQ(mixed.num_tried, 1);
  EXPECT_EQ(mixed.num_unread, 1);
  check_labels(mixed, reward_);  // no error: the other row can be graded
}

TEST_F(LabelTrial, TriesABoundedNumberSpreadOverTheRows) {
  std::string rows;
  for (int64_t i = 0; i < kMostTried + kMostTried / 2; ++i) rows += row(i % 2 == 0 ? "1" : "2");
  const LabelTrials trials = run(rows);
  EXPECT_EQ(trials.num_rows, kMostTried + kMostTried / 2);
  EXPECT_EQ(trials.num_tried, kMostTried);
  EXPECT_EQ(describe_labels(trials), "100000 labels that were tried, of 150000 rows read");
}

}  // namespace
}  // namespace slimexx::rl
