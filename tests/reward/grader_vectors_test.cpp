// The graders against vectors computed with the graders of another trainer. Some of these vectors
// are wrong, as that trainer's notes say, and ours are right: grader_vector_exceptions.jsonl lists
// exactly these. The test fails for a disagreement that is not listed, and for a listed one that no
// longer exists.
#include <map>
#include <set>

#include "reward/answers/answer_forms.h"
#include "reward/case_file.h"
#include "reward/choice/gpqa.h"
#include "reward/dapo.h"
#include "reward/deepscaler/deepscaler_equality.h"
#include "reward/graders.h"
#include "test_paths.h"

namespace slimexx::reward {
namespace {

class GraderVectors : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = test_data_path("golden/grading/grader_vectors.json");
    vectors_ = parse_json_file(path);
    const std::string exceptions = test_data_path("reward/grader_vector_exceptions.jsonl");
    for (const Json& row : read_json_lines(exceptions)) {
      ASSERT_GE(row.at("reason").get<std::string>().size(), 10u) << row.dump();
      exceptions_[row.at("vector").dump()] = row.at("ours");
    }
  }

  // `id` names the value: the vector's section and inputs, and the field.
  void expect_value(const Json& id, const Json& theirs, const Json& ours) {
    ++checked_;
    const auto listed = exceptions_.find(id.dump());
    if (listed == exceptions_.end()) {
      EXPECT_EQ(ours, theirs) << "an unlisted disagreement at " << id.dump();
      return;
    }
    used_.insert(id.dump());
    EXPECT_NE(ours, theirs) << "listed as an exception, but agrees: " << id.dump();
    EXPECT_EQ(ours, listed->second) << "not what the exception says: " << id.dump();
  }

  void expect_all_used(const std::string& section) {
    for (const auto& [id, ours] : exceptions_) {
      if (parse_json(id, "id").at(0) != section) continue;
      EXPECT_TRUE(used_.count(id)) << "an exception for no vector: " << id;
    }
  }

  Json vectors_;
  std::map<std::string, Json> exceptions_;
  std::set<std::string> used_;
  int checked_ = 0;
};

TEST_F(GraderVectors, Pairs) {
  for (const Json& row : vectors_.at("pairs")) {
    const std::string given = row.at("given"), truth = row.at("truth");
    const auto check = [&](const char* field, const Json& ours) {
      expect_value({"pairs", given, truth, field}, row.at(field), ours);
    };
    const bool mathd = compare_mathd(truth, given).equal;
    const bool sympy = compare_sympy(truth, given).equal;
    check("mathd", mathd);
    check("sympy", sympy);
    check("final", mathd || sympy);
    check("norm_given", sympy_form(given));
    check("norm_truth", sympy_form(truth));
    check("mathd_given", mathd_form(given));
  }
  expect_all_used("pairs");
  EXPECT_EQ(checked_, 108 * 6);
}

TEST_F(GraderVectors, LatexToText) {
  for (const Json& row : vectors_.at("latex_to_text")) {
    const std::string latex = row.at("latex");
    const auto check = [&](const char* field, const Json& ours) {
      expect_value({"latex_to_text", latex, field}, row.at(field), ours);
    };
    check("text", latex_plain_text(latex).value_or("(none)"));
    check("normalized", sympy_form(latex));
    check("mathd", mathd_form(latex));
  }
  expect_all_used("latex_to_text");
  EXPECT_EQ(checked_, 68 * 3);
}

TEST_F(GraderVectors, Deepscaler) {
  for (const Json& row : vectors_.at("deepscaler")) {
    const Json ours = static_cast<int>(grade_deepscaler(make_input(row)).reward);
    expect_value({"deepscaler", row.at("response"), row.at("label")}, row.at("reward"), ours);
  }
  expect_all_used("deepscaler");
  EXPECT_EQ(checked_, 20);
}

TEST_F(GraderVectors, Dapo) {
  for (const Json& row : vectors_.at("dapo")) {
    const Grade grade = grade_dapo(make_input(row));
    const Json ours = {{"score", grade.values.at("score")},
                       {"acc", grade.values.at("acc") == 1.0},
                       {"pred", grade.prediction}};
    EXPECT_EQ(grade.reward, grade.values.at("score"));
    expect_value({"dapo", row.at("response"), row.at("label")}, row.at("out"), ours);
  }
  expect_all_used("dapo");
  EXPECT_EQ(checked_, 22);
}

TEST_F(GraderVectors, Gpqa) {
  for (const Json& row : vectors_.at("gpqa")) {
    const Grade grade = grade_gpqa(make_input(row));
    const Json letter = grade.prediction.empty() ? Json() : Json(grade.prediction);
    const Json id = {"gpqa", row.at("response"), row.at("label"), row.at("metadata")};
    expect_value(id, Json({row.at("reward"), row.at("letter")}), Json({grade.reward, letter}));
  }
  expect_all_used("gpqa");
  EXPECT_EQ(checked_, 19);
}

TEST_F(GraderVectors, F1) {
  for (const Json& row : vectors_.at("f1")) {
    RewardInput input;
    input.response = row.at("pred");
    input.label = row.at("truth");
    const Grade grade = grade_f1(input);
    const char* names[] = {"f1", "precision", "recall"};
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(grade.values.at(names[i]), row.at("f1_p_r").at(i).get<double>(), 1e-15)
          << names[i] << " of " << row.dump();
    }
    EXPECT_EQ(grade.reward, grade.values.at("f1"));
  }
}

}  // namespace
}  // namespace slimexx::reward
