#include <set>

#include "reward/answers/decimal_text.h"
#include "reward/answers/text_scan.h"
#include "reward/case_file.h"
#include "reward/graders.h"
#include "slimexx/base/error.h"
#include "slimexx/base/thread_pool.h"

namespace slimexx::reward {
namespace {

RewardOptions options_of(const std::string& rm_type, const std::string& reward_key = "") {
  RewardOptions options;
  options.rm_type = rm_type;
  options.reward_key = reward_key;
  return options;
}

RewardInput input_of(const std::string& response, const std::string& label,
                     const std::string& metadata = "") {
  RewardInput input;
  input.response = response;
  input.label = label;
  if (!metadata.empty())
    input.metadata = std::make_shared<const Json>(parse_json(metadata, "test"));
  return input;
}

Error error_of(const RewardOptions& options) {
  try {
    make_grader(options);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error for " << options.rm_type << " " << options.reward_key;
  return Error(ErrorCode::kUsage, "none");
}

TEST(Rewards, ListsEveryGraderOnceWithItsDoc) {
  std::set<std::string> names;
  for (const RewardInfo& info : list_rewards()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_GT(info.doc.size(), 10u) << info.name;
  }
  const std::set<std::string> expected = {"deepscaler", "dapo", "gsm8k",  "math",
                                          "gpqa",       "f1",   "random", "remote"};
  EXPECT_EQ(names, expected);
}

TEST(Rewards, NamesTheNearestForAnUnknownType) {
  const Error error = error_of(options_of("boxed_deepscalar"));
  EXPECT_EQ(error.code(), ErrorCode::kUsage);
  EXPECT_NE(error.message().find("boxed_deepscalar"), std::string::npos);
  EXPECT_NE(error.hint().find("'deepscaler'"), std::string::npos) << error.hint();
  EXPECT_EQ(error_of(options_of("")).code(), ErrorCode::kUsage);
  EXPECT_EQ(error_of(options_of("boxed_")).code(), ErrorCode::kUsage);
}

TEST(Rewards, RefusesAKeyThatTheGraderDoesNotGive) {
  EXPECT_EQ(error_of(options_of("dapo", "accuracy")).code(), ErrorCode::kUsage);
  EXPECT_NE(error_of(options_of("dapo", "accuracy")).hint().find("acc"), std::string::npos);
  EXPECT_EQ(error_of(options_of("deepscaler", "score")).code(), ErrorCode::kUsage);
  EXPECT_EQ(error_of(options_of("remote")).code(), ErrorCode::kUsage);  // no rm_url
}

TEST(Rewards, TakesTheValueOfRewardKey) {
  const std::vector<RewardInput> inputs = {input_of("Answer: 1", "1"), input_of("Answer: 2", "1")};
  const auto rewards = [&](const std::string& key) {
    const auto grades = make_grader(options_of("dapo", key))->grade(inputs);
    return std::vector<double>{grades.at(0).reward, grades.at(1).reward};
  };
  EXPECT_EQ(rewards(""), (std::vector<double>{1, -1}));
  EXPECT_EQ(rewards("score"), (std::vector<double>{1, -1}));
  EXPECT_EQ(rewards("acc"), (std::vector<double>{1, 0}));
}

TEST(Rewards, BoxedPrefixGradesTheBoxOnly) {
  const auto reward = [](const std::string& type, const std::string& response) {
    return make_grader(options_of(type))
        ->grade(std::vector{input_of(response, "red fox")})[0]
        .reward;
  };
  EXPECT_DOUBLE_EQ(reward("f1", "dog \\boxed{red fox}"), 0.4);  // "boxedred" is one word
  EXPECT_EQ(reward("boxed_f1", "dog \\boxed{red fox}"), 1);
  EXPECT_EQ(reward("boxed_f1", "\\boxed{red fox} \\boxed{dog}"), 0);
  EXPECT_EQ(reward("boxed_f1", "red fox"), 0);
}

TEST(Rewards, ARowMayNameItsOwnType) {
  const auto grades = make_grader(options_of("f1"))
                          ->grade(std::vector{
                              input_of("Answer: 7", "7"),
                              input_of("Answer: 7", "7", R"({"rm_type": "dapo"})"),
                              input_of("Answer: 8", "7", R"({"metadata": {"rm_type": "dapo"}})"),
                              input_of("x \\boxed{7}", "7", R"({"rm_type": "boxed_f1"})"),
                              input_of("Answer: 7", "7", R"({"rm_type": ""})"),
                          });
  EXPECT_DOUBLE_EQ(grades.at(0).reward, 2.0 / 3);
  EXPECT_EQ(grades.at(1).reward, 1);
  EXPECT_EQ(grades.at(2).reward, -1);
  EXPECT_EQ(grades.at(3).reward, 1);
  EXPECT_DOUBLE_EQ(grades.at(4).reward, 2.0 / 3);
  try {
    make_grader(options_of("f1"))->grade(std::vector{input_of("x", "y", R"({"rm_type": "fl"})")});
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInput);
    EXPECT_NE(error.message().find("'fl'"), std::string::npos);
  }
}

TEST(Rewards, ChecksTheTypeThatARowNames) {
  for (const char* good : {"null", "{}", R"({"rm_type": "boxed_f1"})", R"({"rm_type": "remote"})",
                           R"({"metadata": {"rm_type": "math"}})", R"({"rm_type": null})"})
    EXPECT_NO_THROW(check_own_rm_type(input_of("", "", good))) << good;
  EXPECT_THROW(check_own_rm_type(input_of("", "", R"({"rm_type": 5})")), Error);
  try {
    check_own_rm_type(input_of("", "", R"({"metadata": {"rm_type": "boxed_mth"}})"));
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInput);
    EXPECT_EQ(error.where(), "");
    EXPECT_NE(error.hint().find("did you mean 'math'"), std::string::npos) << error.hint();
  }
}

TEST(Rewards, GradesDoNotDependOnThreadsOrNeighbours) {
  std::vector<RewardInput> inputs;
  for (int i = 0; i < 500; ++i) {
    inputs.push_back(input_of("</think>\\boxed{" + std::to_string(i % 7) + "/3}", "2/3"));
    inputs.back().seed = static_cast<uint64_t>(i);
  }
  for (const char* type : {"deepscaler", "random"}) {
    const auto grader = make_grader(options_of(type));
    set_num_threads(1);
    const auto serial = grader->grade(inputs);
    set_num_threads(4);
    const auto parallel = grader->grade(inputs);
    for (size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_EQ(serial[i].reward, parallel[i].reward) << type << " " << i;
      EXPECT_EQ(serial[i].reason, parallel[i].reason) << type << " " << i;
      EXPECT_EQ(grader->grade(std::span(inputs).subspan(i, 1))[0].reward, serial[i].reward);
    }
  }
  EXPECT_TRUE(make_grader(options_of("random"))->grade({}).empty());
}

TEST(Rewards, RandomIsAFairCoinNamedByTheSeed) {
  int64_t ones = 0;
  constexpr int kDraws = 10'000;
  for (int seed = 0; seed < kDraws; ++seed) {
    RewardInput input;
    input.seed = static_cast<uint64_t>(seed);
    const double reward = grade_random(input).reward;
    ASSERT_TRUE(reward == 0 || reward == 1) << reward;
    ones += reward == 1 ? 1 : 0;
    input.response = "other";
    ASSERT_EQ(grade_random(input).reward, reward) << seed;
  }
  EXPECT_NEAR(static_cast<double>(ones), kDraws / 2.0, 4 * 50);  // 4 standard deviations
}

TEST(DecimalText, ReadsIntegersExactly) {
  const std::pair<const char*, const char*> kIntegers[] = {
      {"42", "42"},
      {"+5", "5"},
      {"-5", "-5"},
      {" 7 ", "7"},
      {"007", "7"},
      {"5.", "5"},
      {".0", "0"},
      {"42.0", "42"},
      {"1e3", "1000"},
      {"1.5e1", "15"},
      {"1200e-2", "12"},
      {"-0", "0"},
      {"0.00000001", "0"},
      {"1e-8", "0"},
      {"1e-999", "0"},
      {"0.0000001", "0"},
      {"0.99999995", "1"},
      {"99.99999999", "100"},
      {"-0.99999999", "-1"},
      {"10000000000000001", "10000000000000001"},
      {"0e999999999999999999999", "0"},
  };
  for (const auto& [text, integer] : kIntegers) EXPECT_EQ(integer_text(text), integer) << text;
  for (const char* text : {"", "-", ".", "e5", "1e", "1e+", "1.2", "0.00000011", "0.5", "x", "1 2",
                           "1e400", "inf", "nan", "0x10", "1_0", "1,000", "--5", "1.5.0"}) {
    EXPECT_EQ(integer_text(text), std::nullopt) << text;
  }
}

TEST(DecimalText, DropsThousandsCommasOnly) {
  EXPECT_EQ(strip_thousands_commas("1,234,567,890"), "1234567890");
  EXPECT_EQ(strip_thousands_commas("(1,234,56)"), "(1234,56)");
  EXPECT_EQ(strip_thousands_commas("12,34"), "12,34");
  EXPECT_EQ(strip_thousands_commas("1,2345"), "1,2345");
  EXPECT_EQ(strip_thousands_commas("x,123"), "x,123");
}

TEST(TextScan, FindsTheFinalBox) {
  const auto box = [](const char* text) {
    std::string content;
    return read_final_box(text, content) ? content : "(none)";
  };
  EXPECT_EQ(box("\\boxed{1}\\boxed{{2}}"), "{2}");
  EXPECT_EQ(box("\\boxed{\\frac{1}{2}} "), "\\frac{1}{2}");
  EXPECT_EQ(box("\\boxed{a\\}b}"), "a\\}b");
  EXPECT_EQ(box("\\boxed{a\\\\}"), "a\\\\");
  EXPECT_EQ(box("\\boxed{1}\\boxed{2"), "(none)");
  EXPECT_EQ(box("\\boxed"), "(none)");
  EXPECT_EQ(box("\\boxed {1}"), "(none)");
}

TEST(TextScan, CutsAtCharacters) {
  EXPECT_EQ(last_chars("a\u00e9\u4e00", 2), "\u00e9\u4e00");
  EXPECT_EQ(last_chars("\x80\x80\x80", 2), "\x80\x80");
  EXPECT_EQ(shorten("\u4e00\u4e00", 4), "\u4e00...");
  EXPECT_EQ(trim_space("\u3000 x\u00a0\n"), "x");
  EXPECT_EQ(lower_text("\u00c9A\xff"),
            "\u00e9"
            "a\xff");
}

}  // namespace
}  // namespace slimexx::reward
