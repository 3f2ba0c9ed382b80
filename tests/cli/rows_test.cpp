// The verbs that need no model: tokenize and grade.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "run_binary.h"
#include "test_paths.h"

namespace slimexx::cli {
namespace {

// Runs the cases of the tokenizer tests through the verb.
TEST(Tokenize, AgreesWithTheVectors) {
  std::map<std::string, std::vector<Json>> by_tokenizer;
  for (const Json& row : parse_lines(read_bytes(test_data_path("text/tokenizer_test.jsonl")))) {
    if (row.contains("tokenizer") && row.contains("text") && row.contains("ids")) {
      by_tokenizer[row["tokenizer"]].push_back(row);
    }
  }
  ASSERT_FALSE(by_tokenizer.empty());
  for (const auto& [name, cases] : by_tokenizer) {
    const Folder folder;
    folder.put("m/tokenizer.json", read_bytes(test_data_path("text/tokenizers/") + name + ".json"));
    std::string rows;
    for (const Json& row : cases) rows += Json{{"text", row["text"]}}.dump() + "\n";
    const Finished f =
        run_slimexx({"tokenize", "--hf-checkpoint", folder / "m", "--input",
                     folder.put("in.jsonl", rows), "--output", folder / "out.jsonl"});
    ASSERT_EQ(f.status, 0) << f.err;
    const auto found = parse_lines(read_bytes(folder / "out.jsonl"));
    ASSERT_EQ(found.size(), cases.size());
    for (size_t i = 0; i < cases.size(); ++i) {
      EXPECT_EQ(found[i]["ids"], cases[i]["ids"]) << name << ": " << cases[i]["text"];
      EXPECT_EQ(found[i]["text"], cases[i]["text"]) << name;
    }
  }
}

TEST(Tokenize, ReadsAndWritesCompressedLines) {
  const Folder folder;
  folder.put("m/tokenizer.json", read_bytes(test_data_path("text/tokenizers/qwen.json")));
  const std::string once = folder / "once.jsonl.zst", twice = folder / "twice.jsonl";
  ASSERT_EQ(run_slimexx({"tokenize", "--hf-checkpoint", folder / "m", "--input",
                         folder.put("in.jsonl", "{\"text\":\"abc abc\"}\n"), "--output", once})
                .status,
            0);
  ASSERT_EQ(
      run_slimexx({"tokenize", "--hf-checkpoint", folder / "m", "--input", once, "--output", twice})
          .status,
      0);  // result rows also contain "text"
  EXPECT_EQ(parse_lines(read_bytes(twice))[0]["text"], "abc abc");
}

TEST(Tokenize, NamesTheRowThatATemplateRefuses) {
  const Folder folder;
  folder.put("m/tokenizer.json", read_bytes(test_data_path("text/tokenizers/qwen.json")));
  folder.put("m/chat_template.jinja",
             "{% if messages|length > 1 %}\n{{ raise_exception('one only') }}{% endif %}");
  const std::string user = R"({"role":"user","content":"a"})";
  const Finished f =
      run_slimexx({"tokenize", "--hf-checkpoint", folder / "m", "--input",
                   folder.put("in.jsonl", R"({"messages":[)" + user + "]}\n" + R"({"messages":[)" +
                                              user + "," + user + "]}\n")});
  EXPECT_EQ(f.status, 2) << f.err;
  EXPECT_NE(f.err.find("one only"), std::string::npos) << f.err;
  EXPECT_NE(f.err.find("in.jsonl:2"), std::string::npos) << f.err;
  EXPECT_NE(f.err.find("chat_template.jinja: line 2"), std::string::npos) << f.err;
  EXPECT_NE(f.err.find("hint: "), std::string::npos) << f.err;
}

TEST(Grade, GivesRewardAndReason) {
  const Folder folder;
  const std::string input = folder.put(
      "in.jsonl",
      "{\"response\":\"so \\\\boxed{4}\",\"label\":\"4\"}\n"
      "{\"response\":\"so \\\\boxed{5}\",\"label\":4,\"prompt\":\"2+2\",\"source\":\"x\"}\n"
      "{\"response\":\"\",\"label\":null}\n");
  const Finished f = run_slimexx({"grade", "--rm-type", "math", "--input", input});
  ASSERT_EQ(f.status, 0) << f.err;
  const auto rows = parse_lines(f.out);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["reward"], 1);
  EXPECT_EQ(rows[1]["reward"], 0);
  EXPECT_EQ(rows[2]["reward"], 0);
  EXPECT_FALSE(rows[1].contains("failed"));
  EXPECT_EQ(rows[2].value("failed", false), true) << "a label that is empty is no score of 0";
  EXPECT_NE(f.err.find("the grader failed on 1 of 3 rows"), std::string::npos) << f.err;
  for (const Json& row : rows) EXPECT_FALSE(row["reason"].get<std::string>().empty());
}

TEST(Grade, RewardKeyChoosesTheValue) {
  const Folder folder;
  const std::string input =
      folder.put("in.jsonl", "{\"response\":\"Answer: 5\",\"label\":\"4\"}\n");
  const auto reward = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"grade", "--rm-type", "dapo", "--input", input};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished f = run_slimexx(arguments);
    EXPECT_EQ(f.status, 0) << f.err;
    return parse_lines(f.out)[0]["reward"].get<double>();
  };
  EXPECT_EQ(reward({"--reward-key", "score"}), -1);
  EXPECT_EQ(reward({"--reward-key", "acc"}), 0);
}

}  // namespace
}  // namespace slimexx::cli
