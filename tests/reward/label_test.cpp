// Checks of labels before grading: lists of accepted answers, labels that are not answers, and the
// trial of a label on its own grader.
#include "reward/label.h"

#include <gtest/gtest.h>

#include "reward/case_file.h"
#include "reward/graders.h"
#include "slimexx/base/error.h"
#include "test_paths.h"

namespace slimexx::reward {
namespace {

using Texts = std::vector<std::string>;

TEST(Label, ListOfTextsHasAnswers) {
  EXPECT_EQ(read_answers("42").answers, Texts{"42"});
  EXPECT_EQ(read_answers(R"(["a", "b"])").answers, (Texts{"a", "b"}));
  EXPECT_EQ(read_answers(R"( ["a"] )").answers, Texts{"a"});
  EXPECT_EQ(read_answers("[72]").answers, Texts{"72"});
  // Intervals, points, matrices and sets.
  for (const char* text : {"[1, 2]", "[-2,7]", "[[1,2],[3,4]]", "[0,1)", "{1,2}", "[a,b]", "{}",
                           "[", "{", "", " ", "[x", "\\{1\\}"})
    EXPECT_EQ(read_answers(text).answers, Texts{text}) << text;
}

TEST(Label, WhatIsNoAnswerIsAFault) {
  for (const char* text :
       {"[]", "[ ]", R"({"answer": "72"})", R"({"ground_truth": 72, "style": "rule"})",
        R"([{"a": 1}])", R"(["a", null])", R"(["a", 1])", "['72']", "['a', 'b']",
        "{'answer': '72'}", "[null]"}) {
    const Label label = read_answers(text);
    EXPECT_TRUE(label.answers.empty()) << text;
    EXPECT_FALSE(label.fault.empty()) << text;
  }
  const std::string deep(100'000, '[');
  EXPECT_EQ(read_answers(deep).answers, Texts{deep});
}

Grade grade(const std::string& rm_type, const std::string& response, const std::string& label,
            const std::string& reward_key = "") {
  RewardOptions options;
  options.rm_type = rm_type;
  options.reward_key = reward_key;
  RewardInput input;
  input.response = response;
  input.label = label;
  return make_grader(options)->grade(std::vector{input})[0];
}

TEST(Label, BestAcceptedAnswerCountsForEveryGrader) {
  struct Case {
    const char *rm_type, *response, *label;
    double reward;
  };
  const Case cases[] = {
      {"f1", "NYC", R"(["New York", "NYC"])", 1},
      {"f1", "York", R"(["New York", "NYC"])", 2.0 / 3},
      {"f1", "Boston", R"(["New York", "NYC"])", 0},
      {"f1", "yes", R"(["yes", "true"])", 1},
      {"math", "\\boxed{0.5}", R"(["2", "\\frac{1}{2}"])", 1},
      {"math", "\\boxed{3}", R"(["2", "4"])", 0},
      {"math", "\\boxed{2}", R"(["the answer is 2", "2"])", 1},
      {"boxed_math", "so \\boxed{4}", R"(["2", "4"])", 1},
      {"deepscaler", "</think>\\boxed{4}", R"(["2", "4"])", 1},
      {"dapo", "Answer: 4", R"(["2", "4"])", 1},
      {"dapo", "Answer: 3", R"(["2", "4"])", -1},
      {"gsm8k", "#### 4", R"(["2", "4"])", 1},
      {"gpqa", "Answer: C", R"(["A", "C"])", 1},
      {"gpqa", "Answer: B", R"(["A", "C"])", 0},
  };
  for (const Case& one : cases) {
    const Grade got = grade(one.rm_type, one.response, one.label);
    EXPECT_NEAR(got.reward, one.reward, 1e-12) << one.rm_type << " " << one.label << got.reason;
    EXPECT_FALSE(got.failed) << one.rm_type << " " << one.label << got.reason;
  }
  EXPECT_EQ(grade("dapo", "Answer: 4", R"(["2", "4"])", "acc").reward, 1);
  EXPECT_TRUE(grade("dapo", "Answer: 4", R"(["two", "four"])").failed);
  EXPECT_TRUE(grade("f1", "x", R"({"answer": "x"})").failed);
  EXPECT_FALSE(grade("random", "x", "[]").failed);
}

// A case: {"rm_type", "label", "metadata"?, "fault": part of the fault, or ""}
TEST(Label, IsTriedOnItsGrader) {
  const std::string path = test_data_path("reward/label_trials.jsonl");
  int count = 0;
  for (const Json& row : read_json_lines(path)) {
    RewardInput input;
    input.label = json_label_text(row.at("label"));
    if (row.contains("metadata")) input.metadata = std::make_shared<const Json>(row["metadata"]);
    const LabelTrial trial = try_label(row.at("rm_type").get<std::string>(), input);
    EXPECT_TRUE(trial.is_tried) << row.dump();
    const std::string part = row.at("fault");
    EXPECT_EQ(trial.fault.empty(), part.empty()) << row.dump() << ": " << trial.fault;
    EXPECT_NE(trial.fault.find(part), std::string::npos) << row.dump() << ": " << trial.fault;
    ++count;
  }
  EXPECT_GT(count, 60);
}

TEST(Label, IsNotTriedWhereNoGraderOfOursReadsIt) {
  RewardInput input;
  EXPECT_FALSE(try_label("random", input).is_tried);
  EXPECT_FALSE(try_label("remote", input).is_tried);
  EXPECT_FALSE(try_label("boxed_remote", input).is_tried);
  input.metadata = std::make_shared<const Json>(Json{{"rm_type", "random"}});
  EXPECT_FALSE(try_label("math", input).is_tried);
  input.metadata = std::make_shared<const Json>(Json{{"rm_type", "dapo"}});
  EXPECT_TRUE(try_label("random", input).is_tried);
  EXPECT_FALSE(try_label("random", input).fault.empty());
}

// If `math` cannot read a label, grading fails for every response except the same text.
TEST(Label, UnreadableReferenceIsAFailure) {
  for (const char* label : {"The answer is 72", "<<48+24=72>>72", "?", "N/A",
                            "Natalia sold 48+24 = 72 clips altogether in April and May."}) {
    for (const char* response : {"\\boxed{72}", "\\boxed{5}", "no idea", ""})
      EXPECT_TRUE(grade("math", response, label).failed) << label << " | " << response;
    EXPECT_TRUE(grade("deepscaler", "</think>\\boxed{5}", label).failed) << label;
    EXPECT_TRUE(grade("deepscaler", "\\boxed{72}", label).failed) << label;
  }
  EXPECT_EQ(grade("math", "\\boxed{72}", "She sold 48/2 = 24 in May.\n#### 72").reward, 1);
  EXPECT_EQ(grade("math", "\\boxed{73}", "#### 72").reward, 0);
  EXPECT_FALSE(grade("math", "\\boxed{73}", "#### 72").failed);
}

TEST(Label, BoxedPairsThatCannotBeRightAreRefused) {
  for (const char* rm_type : {"boxed_deepscaler", "boxed_dapo"}) {
    EXPECT_THROW(grade(rm_type, "x", "1"), Error) << rm_type;
    RewardInput row;
    row.metadata = std::make_shared<const Json>(Json{{"rm_type", rm_type}});
    EXPECT_THROW(check_own_rm_type(row), Error) << rm_type;
  }
  for (const RewardInfo& info : list_rewards())
    EXPECT_EQ(info.instead_of_boxed.empty(), info.name != "deepscaler" && info.name != "dapo")
        << info.name;
}

}  // namespace
}  // namespace slimexx::reward
