#include <cmath>

#include "reward/case_file.h"
#include "reward/graders.h"

namespace slimexx::reward {
namespace {

TEST(Dapo, AgreesWithItsCases) { run_case_file("dapo.jsonl", grade_dapo); }

TEST(Dapo, EndsOnHostileText) {
  for (const std::string& text : hostile_texts()) {
    for (const std::string& label : {std::string("42"), text}) {
      RewardInput input;
      input.label = label;
      for (const std::string& response :
           {text, "</think>\\boxed{" + text + "}", "Answer: " + text, text + "\nAnswer: " + text}) {
        input.response = response;
        const Grade grade = grade_dapo(input);
        EXPECT_TRUE(std::isfinite(grade.reward));
        EXPECT_FALSE(grade.reason.empty());
        EXPECT_LT(grade.reason.size(), 2000u);
      }
    }
  }
}

}  // namespace
}  // namespace slimexx::reward
