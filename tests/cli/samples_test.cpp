// `slimexx samples` on files of samples.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "run_binary.h"
#include "slimexx/io/lines.h"

namespace slimexx::cli {
namespace {

Json line_of(int rollout, int sample, double reward) {
  return {{"rollout", rollout},
          {"group", 0},
          {"sample", sample},
          {"prompt", "2+2=\n"},
          {"response", "the answer\nof sample " + std::to_string(sample)},
          {"prompt_length", 4},
          {"response_length", 2},
          {"label", "4"},
          {"reward", reward},
          {"reason", "because"},
          {"status", "completed"},
          {"loss_mask", {1, 0}},
          {"advantages", {0.5, 8}},
          {"values", {{"acc", 0.25}}}};
}

class Samples : public testing::Test {
 protected:
  void write(const std::string& name, const std::vector<Json>& lines) {
    std::filesystem::create_directories(folder_ / "run/samples");
    io::LineWriter writer(folder_ / ("run/samples/" + name));
    for (const Json& line : lines) writer.write(line.dump());
    writer.finish();
  }
  Finished show(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"samples", folder_ / "run"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_slimexx(arguments);
  }
  // The sample numbers in the order shown.
  static std::string order_of(const Finished& f) {
    EXPECT_EQ(f.status, 0) << f.text();
    std::string numbers;
    for (size_t at = 0; (at = f.out.find("\nof sample ", at)) != std::string::npos; ++at)
      numbers += f.out[at + 11];
    return numbers;
  }
  Folder folder_;
};

TEST_F(Samples, OrdersAndFilters) {
  std::vector<Json> lines;
  const double rewards[] = {0, 1, -1, 1, 0.5};
  for (int i = 0; i < 5; ++i) lines.push_back(line_of(7, i, rewards[i]));
  lines.push_back(line_of(7, 5, 0));
  lines.back()["grader_failed"] = true;
  write("rollout_000007.jsonl.zst", lines);
  EXPECT_EQ(order_of(show({})), "012");
  EXPECT_EQ(order_of(show({"--worst", "--n", "4"})), "2041");
  EXPECT_EQ(order_of(show({"--best", "--n", "3"})), "134");
  EXPECT_EQ(order_of(show({"--wrong", "--n", "9"})), "024");
  EXPECT_EQ(order_of(show({"--wrong", "--worst", "--n", "2"})), "20");
  EXPECT_EQ(order_of(show({"--failed"})), "5");
  const std::string some = order_of(show({"--random", "--n", "4", "--seed", "3"}));
  EXPECT_EQ(some.size(), 4u);
  EXPECT_EQ(order_of(show({"--random", "--n", "4", "--seed", "3"})), some);
  EXPECT_EQ(order_of(show({"--random", "--n", "100"})).size(), 6u);
  const Finished f = show({"--n", "1"});
  for (const char* part :
       {"rollout 7  group 0  sample 0  reward 0  advantage 0.5", "reason      because",
        "values      acc 0.25", "---- prompt, 4 tokens\n2+2=\n",
        "---- response, 2 tokens\nthe answer\nof sample 0\n", "1 of 6 samples in "})
    EXPECT_NE(f.out.find(part), std::string::npos) << part << "\n" << f.out;
  EXPECT_NE(show({"--failed"}).out.find("not graded"), std::string::npos);
}

TEST_F(Samples, FindsRolloutsAndEvaluations) {
  write("rollout_000000.jsonl.zst", {line_of(0, 1, 0)});
  write("rollout_000010.jsonl.zst", {line_of(10, 2, 0)});
  write("eval_set_000000.jsonl", {line_of(0, 4, 1)});
  write("eval_set_000003.jsonl", {line_of(3, 3, 1)});
  write("rollout_x.jsonl.zst", {});
  EXPECT_EQ(order_of(show({})), "2") << "the newest";
  EXPECT_EQ(order_of(show({"--rollout", "0"})), "1");
  EXPECT_EQ(order_of(show({"--eval", "set"})), "3");
  EXPECT_EQ(order_of(show({"--eval", "set", "--rollout", "2"})), "3");
  EXPECT_EQ(order_of(show({"--eval", "set", "--rollout", "-1"})), "4");
  EXPECT_NE(show({"--eval", "set"}).out.find("evaluation after rollout 2  group 0"),
            std::string::npos);
  EXPECT_NE(run_slimexx({"samples", folder_ / "run/samples/eval_set_000000.jsonl"})
                .out.find("evaluation before training  group 0"),
            std::string::npos);
  EXPECT_EQ(order_of(run_slimexx({"samples", folder_ / "run/samples/rollout_000000.jsonl.zst"})),
            "1");
  const auto refused = [&](const std::vector<std::string>& more, const std::string& part) {
    const Finished f = show(more);
    EXPECT_EQ(f.status, 2) << f.text();
    EXPECT_NE(f.err.find(part), std::string::npos) << f.err;
  };
  refused({"--rollout", "5"}, "available: 0 10");
  refused({"--eval", "set", "--rollout", "3"}, "available: -1 2");
  refused({"--eval", "other"}, "no evaluation of \"other\"");
  refused({"--eval", "other"}, "available: set");
  refused({"--worst", "--best"}, "");
  refused({"--n", "0"}, "");
  const Finished none = run_slimexx({"samples", folder_ / "nothing"});
  EXPECT_EQ(none.status, 2);
  EXPECT_NE(none.err.find("no such run folder"), std::string::npos) << none.err;
  std::filesystem::remove_all(folder_ / "run/samples");
  refused({}, "this folder is not a run folder");
  folder_.put("run/status.json", "{}");
  refused({}, "observe.samples_interval");
  const Finished runs = run_slimexx({"samples", folder_.path()});
  EXPECT_EQ(runs.status, 2);
  EXPECT_NE(runs.err.find("it contains runs: give one of " + folder_ / "run"), std::string::npos)
      << runs.err;
}

// Text from a model cannot control the terminal.
TEST_F(Samples, ControlCharactersAreShownNotSent) {
  Json line = line_of(0, 0, 0);
  line["response"] = "a\x1b[2J\x07\rb\nnext \u202e\u0085 line";
  line["reason"] = "x\n\x1b]0;title\x07";
  line["label"] = std::string("nul\0", 4);
  write("rollout_000000.jsonl.zst", {line});
  const Finished f = show({});
  EXPECT_EQ(f.status, 0) << f.text();
  for (const char c : f.out)
    EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 || c == '\n') << static_cast<int>(c);
  EXPECT_EQ(f.out.find("\u202e"), std::string::npos);
  EXPECT_EQ(f.out.find("\u0085"), std::string::npos);
  EXPECT_NE(f.out.find("\nnext "), std::string::npos) << "line breaks stay";
}

TEST_F(Samples, OtherFilesAreRefusedAtTheirLine) {
  for (const auto& [line, part] : std::vector<std::pair<std::string, std::string>>{
           {R"({"group":0})", "\"sample\""},
           {R"({"group":0,"sample":0,"response_length":1,"reward":"1"})", "reward"},
           {R"({"group":0,"sample":0,"response_length":1,"reward":1,"response":5})", "response"},
           {R"({"group":0,"sample":0,"response_length":1,"reward":1,"values":[1]})", "values"},
           {R"({"group":0,"sample":0,"response_length":1,"reward":1,"advantages":{}})",
            "advantages"},
           {"no json", "not valid JSON"}}) {
    const std::string path = folder_.put("bad.jsonl", line_of(0, 0, 1).dump() + "\n" + line + "\n");
    const Finished f = run_slimexx({"samples", path});
    EXPECT_EQ(f.status, 2) << line << f.text();
    EXPECT_NE(f.err.find("bad.jsonl:2"), std::string::npos) << f.err;
    EXPECT_NE(f.err.find(part), std::string::npos) << f.err;
  }
  const Finished empty = run_slimexx({"samples", folder_.put("empty.jsonl", "")});
  EXPECT_EQ(empty.status, 2) << empty.text();
}

}  // namespace
}  // namespace slimexx::cli
