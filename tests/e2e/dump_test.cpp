// Tests training on a dump: a rollout has the optimizer steps that the configuration asks for.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "e2e/small_run.h"
#include "slimexx/base/json.h"

namespace slimexx::e2e {
namespace {

class Dump : public testing::Test {
 protected:
  void SetUp() override {
    make_checkpoint(folder_, "models/llama");
    make_prompts(folder_);
    const Finished f = run_slimexx(
        0, train_arguments(folder_, folder_ / "first",
                           {"rollout.num_rollout=1", "debug.save_rollout=" + (folder_ / "made")}));
    ASSERT_EQ(f.status, 0) << f.text();  // 16 samples
  }
  Finished train(const std::string& run_dir, std::vector<std::string> settings) const {
    settings.push_back("debug.load_rollout=" + (folder_ / "made"));
    settings.push_back("checkpoint.save_hf=" + (folder_ / (run_dir + "/hf")));
    return run_slimexx(0, train_arguments(folder_, folder_ / run_dir, settings));
  }
  const Folder folder_;
};

TEST_F(Dump, IsCutIntoTheStepsThatAreSet) {
  for (const int steps : {2, 4}) {
    SCOPED_TRACE(steps);
    const std::string by_steps = "steps_" + std::to_string(steps);
    const std::string by_batch = "batch_" + std::to_string(steps);
    Finished f = train(by_steps, {"train.num_steps_per_rollout=" + std::to_string(steps)});
    ASSERT_EQ(f.status, 0) << f.text();
    const Json row = read_rows(folder_ / (by_steps + "/metrics.jsonl")).at(0);
    EXPECT_EQ(number(row, "train/num_steps"), steps);
    EXPECT_EQ(number(row, "train/step"), steps);
    EXPECT_EQ(number(row, "train/global_batch_size"), 16 / steps);
    f = train(by_batch, {"train.global_batch_size=" + std::to_string(16 / steps)});
    ASSERT_EQ(f.status, 0) << f.text();
    EXPECT_EQ(read_bytes(folder_ / (by_steps + "/hf/model.safetensors")),
              read_bytes(folder_ / (by_batch + "/hf/model.safetensors")));
  }
}

TEST_F(Dump, OfAnotherSizeIsRefused) {
  Finished f = train("thirds", {"train.num_steps_per_rollout=3"});
  EXPECT_EQ(f.status, 2) << f.text();
  EXPECT_NE(f.err.find("16 samples, not num_steps_per_rollout 3"), std::string::npos) << f.text();
  f = train("both", {"train.num_steps_per_rollout=2", "train.global_batch_size=4"});
  EXPECT_EQ(f.status, 2) << f.text();
  EXPECT_NE(f.err.find("num_steps_per_rollout 2 * global_batch_size 4"), std::string::npos)
      << f.text();
  f = train("sevens", {"train.global_batch_size=7"});
  EXPECT_EQ(f.status, 2) << f.text();
  EXPECT_NE(f.err.find("16 samples, not a multiple of global_batch_size 7"), std::string::npos)
      << f.text();
}

// The second of two dumps is faulty: the result of the step on the first one is kept, on any number
// of ranks.
TEST_F(Dump, OneThatCannotBeTrainedOnKeepsWhatWasTrained) {
  const std::string first = read_bytes(folder_ / "made/rollout_000000.jsonl");
  const Json sample = parse_json(first.substr(0, first.find('\n')), "rollout_000000.jsonl");
  Json long_sample = sample;
  long_sample["tokens"] = std::vector<int>(100000, 1);
  folder_.put("made/rollout_000001.jsonl", long_sample.dump() + "\n");
  for (const int ranks : {1, 2}) {
    const std::string name = "ranks_" + std::to_string(ranks);
    std::vector<std::string> arguments =
        train_arguments(folder_, folder_ / name,
                        {"rollout.num_rollout=2", "debug.load_rollout=" + (folder_ / "made")});
    arguments.insert(arguments.end(), {"--thread-ranks", std::to_string(ranks)});
    const Finished f = run_slimexx(0, arguments);
    EXPECT_EQ(f.status, 2) << f.text();
    for (const char* words : {"has 100000 tokens, but the model supports",
                              "remove it from the dump", "saved the state after 1 rollouts"})
      EXPECT_NE(f.err.find(words), std::string::npos) << words << f.text();
  }
}

// With a divisor, loss weights do not sum to 1; means over tokens do not change.
TEST_F(Dump, MeansOverTokensDoNotDependOnTheDivisor) {
  const auto first_row = [&](const std::string& name, const std::string& setting) {
    const Finished f = train(name, {setting});
    EXPECT_EQ(f.status, 0) << f.text();
    return read_rows(folder_ / (name + "/metrics.jsonl")).at(0);
  };
  const Json tokens = first_row("tokens", "rl.per_token_loss=true");
  const Json divided = first_row("divided", "rl.loss_token_divisor=1000");
  for (const char* name : {"train/entropy", "train/ois"}) {
    EXPECT_GT(number(tokens, name), 0.5) << name;
    EXPECT_NEAR(number(divided, name), number(tokens, name), 1e-5) << name;
  }
}

// Hints name the keys that make the evaluation too long.
TEST_F(Dump, EvaluationsThatAreTooLongAreRefusedByTheirKeys) {
  const std::string held = folder_.put("held.jsonl", R"({"prompt": "1 + 1 =", "label": "2"})");
  const std::string sets = "eval.eval_prompt_data={held: " + held + "}";
  for (const auto& [setting, words] :
       {std::pair{"eval.eval_max_response_len=99999", "lower eval.eval_max_response_len"},
        {"eval.eval_max_prompt_len=1", "raise eval.eval_max_prompt_len"}})
    expect_refused(folder_, 1, {"eval.eval_interval=1", sets, setting}, {words});
}

class Examples : public testing::Test {
 protected:
  void SetUp() override {
    make_checkpoint(folder_, "models/llama");
    make_prompts(folder_);
  }
  std::string put(const std::string& response) const {
    return folder_.put("sft.jsonl",
                       "{\"prompt\": \"1 + 1 =\", \"response\": \" 2\"}\n"
                       "{\"prompt\": \"x\", \"response\": \"" +
                           response + "\"}\n");
  }
  const Folder folder_;
};

TEST_F(Examples, ThatAreLongerThanTheModelAreRefusedAtTheStart) {
  expect_refused(
      folder_, 1,
      {"train.loss_type=sft", "data.prompt_data=" + put(std::string(100000, 'y')),
       "rollout.n_samples_per_prompt=1", "train.global_batch_size=1"},
      {"an example has 1000", "positions", "sft.jsonl: row 1", "shorten or remove such examples"});
}

TEST_F(Examples, ArePassedAsOftenAsNumEpochSays) {
  for (const std::string key : {"rollout.num_epoch", "train.num_sft_epochs"}) {
    const std::string run_dir = folder_ / key;
    const Finished f = run_slimexx(
        0, train_arguments(
               folder_, run_dir,
               {"train.loss_type=sft", "data.prompt_data=" + put(" y"), "rollout.num_rollout=null",
                "rollout.n_samples_per_prompt=1", "train.global_batch_size=1", key + "=3"}));
    ASSERT_EQ(f.status, 0) << f.text();
    EXPECT_EQ(read_rows(run_dir + "/metrics.jsonl").size(), 6u);
  }
}

}  // namespace
}  // namespace slimexx::e2e
