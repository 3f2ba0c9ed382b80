#include <gtest/gtest.h>

#include "run_binary.h"

namespace slimexx::cli {
namespace {

constexpr const char* kRows =
    "{\"tokens\":[3,1,4,1,5]}\n{\"tokens\":[9,2,6]}\n{\"tokens\":[11,12]}\n";

class Ranks : public testing::Test {
 protected:
  void SetUp() override {
    if (!e2e::why_no_ranks().empty()) GTEST_SKIP() << e2e::why_no_ranks();
  }
};

TEST_F(Ranks, AnswerOnce) {
  const Finished f = run_slimexx_ranks(2, {"version"});
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_NE(f.out.find("2 ranks"), std::string::npos) << f.out;
  EXPECT_EQ(f.out.find("slimexx "), f.out.rfind("slimexx ")) << f.out;
}

TEST_F(Ranks, ScoreAndGenerateAsOneRankDoes) {
  const Folder folder;
  std::string many;  // more tokens than one forward pass
  for (int i = 0; i < 40; ++i) {
    many += "{\"tokens\":[";
    for (int t = 0; t < 300; ++t) many += std::to_string((i + t * t) % 96) + ",";
    many += "1]}\n";
  }
  const std::string input = folder.put("rows.jsonl", many + kRows);
  const std::vector<std::string> score = {
      "score", "--hf-checkpoint", golden_model("qwen3_tied_mqa"), "--input", input, "--output"};
  const std::vector<std::string> generate = {"generate",
                                             "--hf-checkpoint",
                                             golden_model("qwen3_tied_mqa"),
                                             "--input",
                                             folder.put("prompts.jsonl", kRows),
                                             "--n",
                                             "3",
                                             "--max-new-tokens",
                                             "9",
                                             "--output"};
  for (const auto& verb : {score, generate}) {
    auto one = verb, two = verb;
    one.push_back(folder / "one.jsonl");
    two.push_back(folder / "two.jsonl");
    ASSERT_EQ(run_slimexx(one).status, 0);
    const Finished f = run_slimexx_ranks(2, two);
    ASSERT_EQ(f.status, 0) << f.err;
    EXPECT_EQ(read_bytes(folder / "one.jsonl"), read_bytes(folder / "two.jsonl")) << verb[0];
  }
}

TEST_F(Ranks, FailTogetherWithOneMessage) {
  const Finished f = run_slimexx_ranks(2, {"scroe"});
  EXPECT_EQ(f.status, 2) << f.err;
  const size_t at = f.err.find("did you mean score?");
  EXPECT_NE(at, std::string::npos) << f.err;
  EXPECT_EQ(at, f.err.rfind("did you mean score?")) << "both ranks spoke:\n" << f.err;
}

}  // namespace
}  // namespace slimexx::cli
