// Tests the rule graders on their case files (one .jsonl for each) and on hostile text.
#include "reward/graders.h"

#include "reward/case_file.h"

namespace slimexx::reward {
namespace {

TEST(Dapo, AgreesWithItsCases) { run_case_file("dapo.jsonl", grade_dapo); }
TEST(Dapo, EndsOnHostileText) { run_hostile_texts(grade_dapo); }

TEST(Deepscaler, AgreesWithItsCases) { run_case_file("deepscaler.jsonl", grade_deepscaler); }
TEST(Deepscaler, EndsOnHostileText) { run_hostile_texts(grade_deepscaler); }

TEST(F1, AgreesWithItsCases) { run_case_file("f1.jsonl", grade_f1); }
TEST(F1, EndsOnHostileText) { run_hostile_texts(grade_f1); }

TEST(Gpqa, AgreesWithItsCases) { run_case_file("gpqa.jsonl", grade_gpqa); }
TEST(Gpqa, EndsOnHostileText) { run_hostile_texts(grade_gpqa); }

TEST(Gsm8k, AgreesWithItsCases) { run_case_file("gsm8k.jsonl", grade_gsm8k); }
TEST(Gsm8k, EndsOnHostileText) { run_hostile_texts(grade_gsm8k); }
TEST(Gsm8k, SaysWhetherTheAnswerStoodBehindTheMark) {
  const auto strict = [](const char* response) {
    RewardInput input;
    input.response = response;
    input.label = "72";
    return grade_gsm8k(input).values.at("strict");
  };
  EXPECT_EQ(strict("#### 72"), 1);
  EXPECT_EQ(strict("It is 72"), 0);
  EXPECT_EQ(strict("#### 71"), 0);
  EXPECT_EQ(strict("none"), 0);
}

}  // namespace
}  // namespace slimexx::reward
