// Cases for one grader as JSON lines: {"response", "label", "metadata"?, "reward", "failed"? (the
// grader has no score), "reason"? (part of the reason), "repeat"? {"text", "count"} (replaces
// <repeat> in the response)}.
#pragma once
#include <gtest/gtest.h>
#include <memory>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/json_lines.h"
#include "slimexx/base/json.h"
#include "slimexx/reward/rewards.h"
#include "test_paths.h"

namespace slimexx::reward {

inline std::string json_label_text(const Json& label) {
  return label.is_string() ? label.get<std::string>() : label.dump();
}

inline RewardInput make_input(const Json& row) {
  RewardInput input;
  input.response = row.at("response").get<std::string>();
  if (row.contains("repeat")) {
    std::string filler;
    for (int i = 0; i < row["repeat"]["count"].get<int>(); ++i) {
      filler += row["repeat"]["text"].get<std::string>();
    }
    const size_t place = input.response.find("<repeat>");
    EXPECT_NE(place, std::string::npos);
    input.response.replace(place, 8, filler);
  }
  input.label = json_label_text(row.at("label"));
  if (row.contains("metadata")) input.metadata = std::make_shared<const Json>(row["metadata"]);
  return input;
}

inline void run_case_file(const std::string& name, Grade (*grade)(const RewardInput&)) {
  const std::string path = test_data_path("reward/") + name;
  const auto rows = read_json_lines(path);
  ASSERT_FALSE(rows.empty());
  for (size_t i = 0; i < rows.size(); ++i) {
    const RewardInput input = make_input(rows[i]);
    const Grade got = grade(input);
    EXPECT_NEAR(got.reward, rows[i].at("reward").get<double>(), 1e-12)
        << path << ":" << i + 1 << " " << rows[i].dump() << "\nreason: " << got.reason;
    EXPECT_EQ(got.failed, rows[i].value("failed", false))
        << path << ":" << i + 1 << "\nreason: " << got.reason;
    EXPECT_FALSE(got.reason.empty()) << path << ":" << i + 1;
    const std::string part = rows[i].value("reason", "");
    EXPECT_NE(got.reason.find(part), std::string::npos)
        << path << ":" << i + 1 << ": reason '" << got.reason << "' lacks '" << part << "'";
  }
}

// Texts meant to break regular expressions, recursion and quadratic scans.
inline std::vector<std::string> hostile_texts() {
  const auto repeat = [](const std::string& text, int count) {
    std::string out;
    for (int i = 0; i < count; ++i) out += text;
    return out;
  };
  constexpr int kMany = 30'000;
  return {"",
          std::string(1, '\0'),
          "\xff\xfe\xc3",
          repeat("(", kMany),
          repeat("{", kMany),
          repeat("}", kMany),
          repeat("\\", kMany + 1),
          repeat("\\boxed{", kMany),
          repeat("\\frac", kMany),
          repeat("\\sqrt", kMany),
          repeat("\\sqrt{", kMany),
          repeat("\\frac{1}{", kMany) + "2" + repeat("}", kMany),
          repeat("^", kMany),
          repeat("x^", kMany),
          repeat("\\begin{matrix}", kMany),
          repeat("answer ", kMany),
          repeat("answer" + std::string(50, ' '), 5'000),
          repeat("Answer:", kMany),
          repeat("a is ", kMany),
          repeat("1,", kMany) + "1",
          repeat("1,000", kMany),
          repeat("9", kMany),
          "1e" + repeat("9", kMany),
          "1e-" + repeat("9", kMany),
          repeat("the ", kMany),
          repeat("$", kMany),
          repeat("\\text{", kMany),
          repeat(" ", kMany),
          repeat("\n", kMany),
          repeat("\xe2\x88\x9a", kMany),
          repeat("</think>", kMany),
          repeat("###Response", kMany)};
}

// A grader must give a finite score and a short reason for any response and label.
inline void run_hostile_texts(Grade (*grade)(const RewardInput&)) {
  for (const std::string& text : hostile_texts()) {
    for (const std::string& label : {std::string("42"), text}) {
      RewardInput input;
      input.label = label;
      for (const std::string& response :
           {text, "</think>\\boxed{" + text + "}", "Answer: " + text, text + "\nAnswer: " + text}) {
        input.response = response;
        const Grade got = grade(input);
        EXPECT_TRUE(std::isfinite(got.reward));
        EXPECT_FALSE(got.reason.empty());
        EXPECT_LT(got.reason.size(), 2000u);
      }
    }
  }
}

}  // namespace slimexx::reward
