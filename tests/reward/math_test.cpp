// `math`: pairs and responses of math.jsonl and math_responses.jsonl, the shared table of other
// graders' verdicts, the labels of real data sets, and hostile input.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "reward/answers/extract_answer.h"
#include "reward/graders.h"
#include "slimexx/base/json.h"
#include "test_paths.h"

namespace slimexx::reward {
namespace {

std::vector<Json> read_lines(const std::string& path) {
  std::vector<Json> rows;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (!line.empty())
      rows.push_back(parse_json(line, path + ":" + std::to_string(rows.size() + 1)));
  }
  return rows;
}

// Pairs of answers, and responses with a label.
std::vector<Json> own_cases() {
  std::vector<Json> all;
  for (const char* name : {"math", "math_responses", "latex/latex_degrees", "latex/latex_functions",
                           "latex/latex_infix", "latex/latex_layout", "latex/latex_magnitudes",
                           "latex/latex_mixed", "latex/latex_units"}) {
    for (Json& row : read_lines(test_data_path("reward/" + std::string(name) + ".jsonl"))) {
      all.push_back(std::move(row));
    }
  }
  return all;
}

Grade grade(const std::string& label, const std::string& response) {
  RewardInput input;
  input.label = label;
  input.response = response;
  return grade_math(input);
}

TEST(Math, PairsCompareAsListedInBothDirections) {
  int pairs = 0;
  for (const Json& row : own_cases()) {
    if (!row.contains("pred")) continue;
    const std::string gold = row["gold"], prediction = row["pred"];
    const Equality there = compare_answers(gold, prediction),
                   back = compare_answers(prediction, gold);
    EXPECT_EQ(there.equal, row["equal"].get<bool>())
        << gold << " | " << prediction << ": " << there.reason;
    EXPECT_EQ(back.equal, row["equal"].get<bool>())
        << prediction << " | " << gold << ": " << back.reason;
    EXPECT_FALSE(there.reason.empty()) << gold << " | " << prediction;
    EXPECT_TRUE(compare_answers(gold, gold).equal) << gold;
    EXPECT_TRUE(compare_answers(prediction, prediction).equal) << prediction;
    ++pairs;
  }
  EXPECT_GT(pairs, 1400);
}

// Two equal sets of sums, in orders that need more steps than the limit allows: the grade must be a
// failure, not 0.
TEST(Math, StepLimitIsAFailureOfTheGrader) {
  const auto set_of_sums = [](int sums, bool backwards) {
    std::string set;
    for (int i = 0; i < sums; ++i) {
      const int s = backwards ? sums - 1 - i : i;
      set += i > 0 ? "," : "";
      for (int k = 0; k < 50; ++k) {
        const int term = 50 * s + (backwards ? 49 - k : k);
        set += (k > 0 ? "+\\sin(" : "\\sin(") + std::to_string(term) + ")";
      }
    }
    return "\\{" + set + "\\}";
  };
  const Grade cut = grade(set_of_sums(20, false), "\\boxed{" + set_of_sums(20, true) + "}");
  EXPECT_TRUE(cut.failed) << cut.reason;
  EXPECT_EQ(cut.reward, 0);
  EXPECT_NE(cut.reason.find("step limit"), std::string::npos) << cut.reason;
  const Grade whole = grade(set_of_sums(3, false), "\\boxed{" + set_of_sums(3, true) + "}");
  EXPECT_FALSE(whole.failed);
  EXPECT_EQ(whole.reward, 1) << whole.reason;
  EXPECT_TRUE(grade("", "\\boxed{1}").failed);
  EXPECT_FALSE(grade("1", "I do not know").failed);
}

TEST(Math, ResponsesGradeAsListed) {
  int responses = 0;
  for (const Json& row : own_cases()) {
    if (!row.contains("response")) continue;
    const std::string gold = row["gold"], response = row["response"];
    const Grade result = grade(gold, response);
    EXPECT_EQ(result.reward, row["equal"].get<bool>() ? 1.0 : 0.0)
        << gold << " | " << response << " -> " << result.prediction << ": " << result.reason;
    EXPECT_FALSE(result.reason.empty());
    ++responses;
  }
  EXPECT_GT(responses, 700);
}

// Every pair of unequal answers must stay unequal inside a tuple, a set and a box.
TEST(Math, UnequalPairsStayUnequalInsideATuple) {
  for (const Json& row : own_cases()) {
    if (!row.contains("pred") || row["equal"].get<bool>()) continue;
    const std::string gold = row["gold"], prediction = row["pred"];
    const auto boxed = grade(gold, "So \\boxed{" + prediction + "}.");
    EXPECT_EQ(boxed.reward, 0) << gold << " | " << prediction << ": " << boxed.reason;
    const std::string a = "\\left(7, \\frac{" + gold + "}{3}\\right)";
    const std::string b = "\\left(7, \\frac{" + prediction + "}{3}\\right)";
    const Equality inside = compare_answers(a, b);
    EXPECT_FALSE(inside.equal) << a << " | " << b << ": " << inside.reason;
  }
}

std::string key_of(const Json& row) {
  return row["grader"].get<std::string>() + "\n" + row["gold"].get<std::string>() + "\n" +
         row["pred"].get<std::string>();
}

TEST(Math, AgreesWithTheVerdictsOfOtherGradersButForListedExceptions) {
  const std::string path = test_data_path("golden/grading/answer-equivalence.jsonl");
  std::map<std::string, bool> exceptions;  // key -> met
  for (const Json& row : read_lines(test_data_path("reward/answer_equivalence_exceptions.jsonl"))) {
    EXPECT_FALSE(row["reason"].get<std::string>().empty());
    exceptions[key_of(row)] = false;
  }
  const std::set<std::string> graders = {"math_verify.parse+verify", "nemo_skills.math_equal",
                                         "hendrycks.is_equiv"};
  int rows = 0, agreements = 0;
  for (const Json& row : read_lines(path)) {
    const std::string grader = row["grader"];
    if (!graders.count(grader)) continue;
    const std::string gold = row["gold"], prediction = row["pred"];
    // Math-Verify's rows are whole texts that its parser searches for the answer.
    const bool search = grader[0] == 'm';
    const bool equal =
        search ? grade(gold, prediction).reward > 0 : compare_answers(gold, prediction).equal;
    const bool agrees = equal == row["expected"].get<bool>();
    ++rows;
    agreements += agrees;
    const auto listed = exceptions.find(key_of(row));
    if (listed == exceptions.end()) {
      EXPECT_TRUE(agrees) << "not listed: " << row.dump();
    } else {
      listed->second = true;
      EXPECT_FALSE(agrees) << "listed, but agrees now: " << row.dump();
    }
  }
  for (const auto& [key, met] : exceptions) EXPECT_TRUE(met) << "no such row: " << key;
  EXPECT_EQ(rows, 195);
  EXPECT_GE(agreements, rows * 9 / 10);
  RecordProperty("agreements", agreements);
}

// The distinct labels of a set, sorted; at most 700 are kept of a larger set.
std::vector<std::string> labels_of(const std::string& set) {
  std::set<std::string> unique;
  for (const Json& row : read_lines(test_data_path("golden/math/labels.jsonl"))) {
    if (row["set"] == set) unique.insert(row["label"].get<std::string>());
  }
  return {unique.begin(), unique.end()};
}

std::string replace_all(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

TEST(Math, LabelsOfRealDataEqualTheirRewritings) {
  int labels = 0;
  for (const char* name :
       {"math-500", "deepscaler-subset", "aime-2024", "gsm8k-test", "dapo-math-17k"}) {
    for (const std::string& label : labels_of(name)) {
      ++labels;
      EXPECT_TRUE(compare_answers(label, label).equal) << label;
      std::string rewritten = replace_all(label, "\\frac", "\\dfrac");
      rewritten = " " + replace_all(replace_all(rewritten, "\\left", ""), "\\right", "") + " .";
      const Equality equality = compare_answers(label, rewritten);
      EXPECT_TRUE(equality.equal) << label << " | " << rewritten << ": " << equality.reason;
      const bool unbalanced =
          label.find("(k+n-1)!") != std::string::npos;  // lacks a brace in the data
      if (!unbalanced) {
        EXPECT_EQ(grade(label, "Hence the answer is \\boxed{" + label + "}.").reward, 1) << label;
      }
      if (label.find('$') == std::string::npos && label[0] != '\\') {
        EXPECT_EQ(grade(label, "The final answer is $" + label + "$.").reward, 1) << label;
      }
    }
  }
  EXPECT_EQ(labels, 301 + 700 + 29 + 351 + 700);
}

// All pairs of distinct labels of MATH-500 that are found equal; each was confirmed by hand.
TEST(Math, DifferentLabelsOfMath500AreUnequal) {
  const auto labels = labels_of("math-500");
  ASSERT_EQ(labels.size(), 301u);
  const std::set<std::pair<std::string, std::string>> equal = {
      {"-2,1", "1,-2"},       {"10,\\!080", "10080"},
      {"120", "120^\\circ"},  {"15", "15\\mbox{ cm}^2"},
      {"180^\\circ", "\\pi"}, {"2 \\sqrt{5}", "2\\sqrt{5}"},
      {"30", "30^\\circ"},    {"36", "36^\\circ"},
      {"36", "\\$36"},        {"5", "x=5"},
      {"90", "90^\\circ"},    {"\\frac14", "\\frac{1}{4}"}};
  for (size_t i = 0; i < labels.size(); ++i) {
    for (size_t j = i + 1; j < labels.size(); ++j) {
      const Equality equality = compare_answers(labels[i], labels[j]);
      EXPECT_EQ(equality.equal, equal.count({labels[i], labels[j]}) > 0)
          << labels[i] << " | " << labels[j] << ": " << equality.reason;
    }
  }
}

std::string repeat(const std::string& piece, size_t count) {
  std::string out;
  for (size_t k = 0; k < count; ++k) out += piece;
  return out;
}

TEST(Math, HostileInputEndsSoon) {
  const std::vector<std::string> bombs = {repeat("(", 100000),
                                          repeat("{", 100000),
                                          repeat("(", 5000) + "1" + repeat(")", 5000),
                                          repeat("\\frac{", 20000),
                                          repeat("\\sqrt", 20000) + "2",
                                          "2" + repeat("^2", 6000),
                                          "2" + repeat("^{2", 3000) + repeat("}", 3000),
                                          repeat("9^", 80) + "9",
                                          repeat("-", 19000) + "1",
                                          repeat("x+", 9000) + "x",
                                          repeat("(x+1)", 2500),
                                          repeat("9", 100000),
                                          repeat("9", 19000),
                                          repeat(",", 19000),
                                          "5" + repeat("!", 90),
                                          repeat("|", 5000) + "x" + repeat("|", 5000),
                                          repeat("\\boxed{", 14000),
                                          repeat("\\boxed{1},", 10000),
                                          repeat("\\text{", 10000),
                                          repeat("\\sum_{k=1}^{n}", 60) + "k",
                                          repeat("$", 100000),
                                          repeat("\\", 100000),
                                          "\\pm1" + repeat("\\pm1", 50),
                                          repeat("\\begin{pmatrix}", 1000),
                                          repeat("\\color{", 10000),
                                          repeat("\\underbrace{", 1500) + repeat("}_{1}", 1500),
                                          repeat("\\SI{", 4000) + repeat("}", 4000),
                                          repeat("{\\rm ", 3000) + "m",
                                          "1" + repeat("\\text{m}", 2500) + "=",
                                          repeat("{1\\over ", 1500) + "2" + repeat("}", 1500),
                                          repeat("{64 \\brack 32}", 400),
                                          repeat("{", 3000) + "1" + repeat("}", 3000),
                                          repeat("\\max(a,", 90) + "b" + repeat(")", 90),
                                          "n!" + repeat("(n+1)!", 900),
                                          repeat("\\{", 5000),
                                          repeat("[1,2]\\cup", 900) + "[1,2]",
                                          repeat("\\sqrt{1+", 90) + "x" + repeat("}", 90),
                                          repeat("\\sin(", 90) + "x" + repeat(")", 90),
                                          "(x+y+z)^{100000000}",
                                          "1e999999999",
                                          "(((9!)!)!)!",
                                          "\\sqrt{" + repeat("7", 2000) + "}",
                                          "x" + repeat("_{x", 2000) + repeat("}", 2000),
                                          repeat("1\\quad ", 3000),
                                          repeat("x<", 1500) + "x",
                                          repeat("1 ", 50000),
                                          repeat("\xff", 50000),
                                          repeat("answer is ", 10000),
                                          repeat("</think>", 10000),
                                          repeat("<answer>", 10000),
                                          "so it is " + repeat("(1 ", 30000),
                                          "so it is " + repeat("1=", 50000),
                                          "so it is " + repeat("1 - ", 30000),
                                          "so it is " + repeat("|1", 50000),
                                          "so it is " + repeat("\\frac{", 20000),
                                          "so it is " + repeat("$1 a b c ", 10000),
                                          "the answer is so" + repeat("\n", 50000) + "$$1$$",
                                          "the answer is " + repeat("\\begin{align}", 6000),
                                          repeat("Answer A ", 2000) + "1",
                                          repeat("p(x)=", 2000) + "1",
                                          repeat("1\\approx ", 2000) + "1",
                                          repeat("<think>", 10000)};
  for (const std::string& bomb : bombs) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_FALSE(compare_answers("2" + bomb, bomb).reason.empty());
    EXPECT_FALSE(compare_answers(bomb, "x" + bomb).reason.empty());
    EXPECT_FALSE(grade("x", bomb).reason.empty());
    EXPECT_FALSE(grade(bomb, "\\boxed{" + bomb + "}").reason.empty());
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    EXPECT_LT(seconds, 10) << bomb.substr(0, 40) << " ... of " << bomb.size() << " bytes";
  }
}

TEST(Math, RandomBytesAreComparedWithoutHarm) {
  static const std::vector<std::string> kPieces = {"\\frac",
                                                   "{",
                                                   "}",
                                                   "(",
                                                   ")",
                                                   "[",
                                                   "]",
                                                   "\\{",
                                                   "\\}",
                                                   "1",
                                                   "23",
                                                   "x",
                                                   "y",
                                                   "^",
                                                   "_",
                                                   "+",
                                                   "-",
                                                   "*",
                                                   "/",
                                                   ",",
                                                   ";",
                                                   "=",
                                                   "<",
                                                   "\\le",
                                                   "\\cup",
                                                   "\\sqrt",
                                                   "|",
                                                   "\\pm",
                                                   "!",
                                                   "%",
                                                   "^\\circ",
                                                   "\\sin",
                                                   "\\text{",
                                                   "and",
                                                   "or",
                                                   "e",
                                                   "i",
                                                   "\\pi",
                                                   "\\infty",
                                                   "\\begin{pmatrix}",
                                                   "&",
                                                   "\\\\",
                                                   "\\end{pmatrix}",
                                                   " ",
                                                   "$",
                                                   "\\boxed{",
                                                   ".",
                                                   "'",
                                                   ":",
                                                   "\\sum_{k=1}^{3}",
                                                   "\\log",
                                                   "\xc3",
                                                   "\\quad"};
  std::mt19937 random(20240501);
  for (int round = 0; round < 4000; ++round) {
    std::string a, b;
    for (unsigned k = random() % 12; k > 0; --k) a += kPieces[random() % kPieces.size()];
    for (unsigned k = random() % 12; k > 0; --k) b += kPieces[random() % kPieces.size()];
    const Equality there = compare_answers(a, b), back = compare_answers(b, a);
    EXPECT_EQ(there.equal, back.equal) << "round " << round << ": " << a << " | " << b << ": "
                                       << there.reason << " / " << back.reason;
  }
}

TEST(Math, LastBoxedMatchesBraces) {
  EXPECT_EQ(last_boxed("\\boxed{1} and \\boxed{\\frac{1}{2}}"), "\\frac{1}{2}");
  EXPECT_EQ(last_boxed("\\fbox{a} text"), "a");
  EXPECT_EQ(last_boxed("\\boxed{\\{1\\}}"), "\\{1\\}");
  EXPECT_EQ(last_boxed("\\boxed{2"), std::nullopt);
  EXPECT_EQ(last_boxed("none"), std::nullopt);
  EXPECT_EQ(last_boxed("{ \\boxed{7}"), "7");
}

}  // namespace
}  // namespace slimexx::reward
