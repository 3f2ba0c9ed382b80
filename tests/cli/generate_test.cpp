#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "run_binary.h"

namespace slimexx::cli {
namespace {

constexpr const char* kPrompts =
    "{\"tokens\":[3,1,4,1,5,9,2,6]}\n{\"tokens\":[11]}\n{\"tokens\":[50,60,70,50,60,70]}\n";

std::vector<Json> generate(const std::string& model, const Folder& folder,
                           std::vector<std::string> more) {
  std::vector<std::string> arguments = {"generate", "--hf-checkpoint", golden_model(model),
                                        "--input", folder.put("prompts.jsonl", kPrompts)};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Finished f = run_slimexx(arguments);
  EXPECT_EQ(f.status, 0) << f.err;
  return parse_lines(f.out);
}

class Generate : public testing::TestWithParam<std::string> {};

// Log-probs from generate and score are the same bit for bit (numerics contract, E1).
TEST_P(Generate, LogProbsAreThoseOfScore) {
  const Folder folder;
  const auto samples = generate(GetParam(), folder,
                                {"--n", "3", "--max-new-tokens", "12", "--temperature", "0.7",
                                 "--top-p", "0.9", "--top-k", "40", "--seed", "5"});
  ASSERT_EQ(samples.size(), 9u);
  const auto prompts = parse_lines(kPrompts);
  std::string rows;
  for (size_t i = 0; i < samples.size(); ++i) {
    EXPECT_EQ(samples[i]["index"], i / 3);
    EXPECT_EQ(samples[i]["sample"], i % 3);
    Json tokens = prompts[i / 3]["tokens"];
    for (const Json& id : samples[i]["tokens"]) tokens.push_back(id);
    rows += Json{{"tokens", tokens}}.dump() + "\n";
  }
  const Finished f = run_slimexx({"score", "--hf-checkpoint", golden_model(GetParam()), "--input",
                                  folder.put("rows.jsonl", rows), "--temperature", "0.7"});
  ASSERT_EQ(f.status, 0) << f.err;
  const auto scores = parse_lines(f.out);
  for (size_t i = 0; i < samples.size(); ++i) {
    const Json& mine = samples[i]["logprobs"];
    ASSERT_EQ(mine.size(), samples[i]["tokens"].size());
    const size_t first = prompts[i / 3]["tokens"].size() - 1;
    for (size_t t = 0; t < mine.size(); ++t) {
      EXPECT_EQ(mine[t].dump(), scores[i]["logprobs"][first + t].dump())
          << "sample " << i << " token " << t;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Generate, testing::ValuesIn(golden_models()),
                         [](const auto& instance) { return instance.param; });

TEST(GenerateFlags, SeedNamesTheSamples) {
  const Folder folder;
  const std::vector<std::string> flags = {"--n", "2", "--max-new-tokens", "8", "--seed"};
  const auto with_seed = [&](const char* seed) {
    auto more = flags;
    more.emplace_back(seed);
    return generate("llama", folder, more);
  };
  EXPECT_EQ(with_seed("1"), with_seed("1"));
  EXPECT_NE(with_seed("1"), with_seed("2"));
}

TEST(GenerateFlags, GreedyIsTemperatureZero) {
  const Folder folder;
  const auto greedy = generate("llama", folder, {"--greedy", "--max-new-tokens", "8"});
  const auto cold = generate("llama", folder, {"--temperature", "0", "--max-new-tokens", "8"});
  EXPECT_EQ(greedy, cold);
  EXPECT_EQ(generate("llama", folder, {"--top-k", "1", "--max-new-tokens", "8"})[0]["tokens"],
            greedy[0]["tokens"]);
}

TEST(GenerateFlags, FinishReasonsAreToldApart) {
  const Folder folder;
  int stopped = 0, cut = 0;
  for (const Json& s : generate("llama", folder, {"--n", "40", "--max-new-tokens", "60"})) {
    const bool ends_in_eos = s["tokens"].back() == 2;  // from generation_config.json
    EXPECT_EQ(s["finish"], ends_in_eos ? "stop" : "length") << s.dump();
    EXPECT_TRUE(ends_in_eos || s["tokens"].size() == 60u) << s.dump();
    (ends_in_eos ? stopped : cut)++;
  }
  EXPECT_GT(stopped, 0);
  EXPECT_GT(cut, 0);
}

TEST(GenerateFlags, ResponsesEndAtTheLastPosition) {
  const Folder folder;
  for (const Json& s : generate("llama", folder, {"--greedy", "--max-new-tokens", "100000"})) {
    const size_t prompt = parse_lines(kPrompts)[s["index"].get<size_t>()]["tokens"].size();
    EXPECT_LE(prompt + s["tokens"].size(), 512u);
  }
}

}  // namespace
}  // namespace slimexx::cli
