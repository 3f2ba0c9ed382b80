// Tests how runs start: in which folder, from which weights, and what a failed start leaves behind.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "e2e/small_run.h"

namespace slimexx::e2e {
namespace {

namespace fs = std::filesystem;

class Start : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    const std::string reason = GetParam() > 0 ? why_no_ranks() : "";
    if (!reason.empty()) GTEST_SKIP() << reason;
    make_checkpoint(folder_, "models/llama");
    make_prompts(folder_);
  }
  std::vector<std::string> arguments(const std::string& run_dir,
                                     const std::vector<std::string>& settings,
                                     const std::vector<std::string>& flags = {}) const {
    auto all = train_arguments(folder_, folder_ / run_dir, settings);
    all.insert(all.end(), flags.begin(), flags.end());
    return all;
  }
  Finished train(const std::string& run_dir, const std::vector<std::string>& settings,
                 const std::vector<std::string>& flags = {}) const {
    return run_slimexx(GetParam(), arguments(run_dir, settings, flags));
  }
  size_t num_rows(const std::string& run_dir) const {
    return read_rows(folder_ / (run_dir + "/metrics.jsonl")).size();
  }
  const Folder folder_;
};

void expect_mentions(const Finished& f, const std::vector<std::string>& texts) {
  for (const std::string& text : texts)
    EXPECT_NE(f.err.find(text), std::string::npos) << "no \"" << text << "\" in:\n" << f.text();
}

TEST_P(Start, SecondOneInAFolderIsRefused) {
  ASSERT_EQ(train("run", {}).status, 0);
  const std::string rows = read_bytes(folder_ / "run/metrics.jsonl");
  const std::string settings = read_bytes(folder_ / "run/config.resolved.yaml");
  const Finished f = train("run", {"optimizer.lr=3e-3"});
  EXPECT_EQ(f.status, 2) << f.text();
  expect_mentions(f, {"holds another run", "observe.run_dir", folder_ / "run"});
  EXPECT_EQ(read_bytes(folder_ / "run/metrics.jsonl"), rows);
  EXPECT_EQ(read_bytes(folder_ / "run/config.resolved.yaml"), settings);
}

// Runs in its own working folder, in which runs/<name of the file> is made.
TEST_P(Start, WithoutANameGetsAFreeFolder) {
  auto words = arguments("unused", {"checkpoint.save_interval=3", "rollout.num_rollout=3"});
  std::erase_if(words, [](const std::string& w) { return w.starts_with("observe.run_dir="); });
  const std::vector<std::string> there = {"sh", "-c", "cd \"" + folder_.path() + "\"; exec \"$@\"",
                                          "sh"};
  for (int n = 0; n < 2; ++n) {
    const Finished f = run_slimexx(GetParam(), words, there);
    ASSERT_EQ(f.status, 0) << f.text();
    if (n == 1) expect_mentions(f, {"runs/run-2", "--resume runs/run-2/checkpoints"});
  }
  EXPECT_EQ(num_rows("runs/run"), 3u);
  EXPECT_EQ(num_rows("runs/run-2"), 3u);
  for (std::string& word : words)
    if (word.starts_with("rollout.num_rollout=")) word = "rollout.num_rollout=4";
  words.emplace_back("--resume");
  const Finished f = run_slimexx(GetParam(), words, there);
  ASSERT_EQ(f.status, 0) << f.text();
  EXPECT_EQ(num_rows("runs/run"), 3u);
  EXPECT_EQ(num_rows("runs/run-2"), 4u);
}

// The command in a job script, which may be the first or the tenth job of its run.
TEST_P(Start, AutoContinuesOrStartsAnew) {
  const std::vector<std::string> settings = {"checkpoint.save_interval=2", "rollout.num_rollout=2"};
  ASSERT_EQ(train("run", settings, {"--resume", "auto"}).status, 0);
  const Finished f =
      train("run", {"checkpoint.save_interval=2", "rollout.num_rollout=4", "optimizer.lr=3e-3"},
            {"--resume", "auto"});
  ASSERT_EQ(f.status, 0) << f.text();
  expect_mentions(f, {"at rollout 2", "settings that changed", "rollout.num_rollout: 2 -> 4",
                      "optimizer.lr: 0.01 -> 0.003"});
  EXPECT_EQ(num_rows("run"), 4u);
  EXPECT_NE(read_bytes(folder_ / "run/config.resolved.1.yaml").find("lr: 0.01"), std::string::npos);
  EXPECT_NE(read_bytes(folder_ / "run/config.resolved.yaml").find("lr: 0.003"), std::string::npos);
}

TEST_P(Start, LoadAndSaveMayBeOneFolder) {
  const auto settings = [&](int rollouts) {
    return std::vector<std::string>{
        "model.load=" + (folder_ / "ck"), "checkpoint.save=" + (folder_ / "ck"),
        "checkpoint.save_interval=2", "rollout.num_rollout=" + std::to_string(rollouts)};
  };
  Finished f = train("run", settings(2));
  ASSERT_EQ(f.status, 0) << f.text();
  expect_mentions(f, {"holds no checkpoint yet"});
  f = train("run", settings(4));
  ASSERT_EQ(f.status, 0) << f.text();
  expect_mentions(f, {"at rollout 2"});
  EXPECT_EQ(num_rows("run"), 4u);
}

// Starts from the weights of an earlier run: from those of its first step, named by number, and
// from its last weights.
TEST_P(Start, FinetuneTakesTheWeightsAlone) {
  Finished f = train("run", {"checkpoint.save_interval=1", "rollout.num_rollout=2"});
  ASSERT_EQ(f.status, 0) << f.text();
  const std::string load = "model.load=" + (folder_ / "run/checkpoints");
  f = train("last", {load, "model.finetune=true", "rollout.num_rollout=1"});
  ASSERT_EQ(f.status, 0) << f.text();
  expect_mentions(f, {"the weights come from", "step_000002"});
  EXPECT_EQ(num_rows("last"), 1u);
  f = train("first", {load, "model.finetune=true", "model.ckpt_step=1", "rollout.num_rollout=1"});
  ASSERT_EQ(f.status, 0) << f.text();
  expect_mentions(f, {"the weights come from", "step_000001"});
  f = train("none", {"model.finetune=true"});
  EXPECT_EQ(f.status, 2);
  expect_mentions(f, {"model.finetune", "model.load"});
}

TEST_P(Start, ResumeWithAnotherModelOrTokenizerIsRefused) {
  ASSERT_EQ(train("run", {"checkpoint.save_interval=3"}).status, 0);
  const std::string config = read_bytes(folder_ / "model/config.json");
  std::string changed = config;
  const size_t at = changed.find("500000.0");
  ASSERT_NE(at, std::string::npos) << config;
  folder_.put("model/config.json", changed.replace(at, 8, "10000.0"));
  Finished f = train("run", {"rollout.num_rollout=4"}, {"--resume"});
  EXPECT_EQ(f.status, 2) << f.text();
  expect_mentions(f, {"config.json", "rope_theta was 500000.0 and is now 10000.0"});
  folder_.put("model/config.json", config);

  const std::string tokenizer = read_bytes(folder_ / "model/tokenizer.json");
  Json swapped = parse_json(tokenizer, "tokenizer.json");
  Json& vocabulary = swapped.at("model").at("vocab");
  std::swap(vocabulary.at("0"), vocabulary.at("1"));
  folder_.put("model/tokenizer.json", swapped.dump());
  f = train("run", {"rollout.num_rollout=4"}, {"--resume"});
  EXPECT_EQ(f.status, 2) << f.text();
  expect_mentions(f, {"tokenizer.json", "model.vocab.0 was"});
  // A tokenizer file with other formatting counts as the same tokenizer.
  folder_.put("model/tokenizer.json", parse_json(tokenizer, "tokenizer.json").dump(4));
  f = train("run", {"rollout.num_rollout=4"}, {"--resume"});
  EXPECT_EQ(f.status, 0) << f.text();
}

TEST_P(Start, FolderOfCheckpointsIsNotShared) {
  const std::vector<std::string> settings = {"checkpoint.save=" + (folder_ / "ck"),
                                             "rollout.num_rollout=100000"};
  Program first(GetParam(), arguments("first", settings));
  ASSERT_TRUE(first.wait_until([&] { return fs::exists(folder_ / "first/metrics.jsonl"); }));
  const Finished f = train("second", settings);
  EXPECT_EQ(f.status, 2) << f.text();
  expect_mentions(f, {"another run is writing to this folder of checkpoints", folder_ / "ck"});
  EXPECT_FALSE(fs::exists(folder_ / "second"));
  EXPECT_TRUE(first.is_running());
}

TEST_P(Start, ThatFailsLeavesNoFolder) {
  Finished f = train("run", {"data.prompt_data=" + (folder_ / "absent.jsonl")});
  EXPECT_GT(f.status, 0) << f.text();
  EXPECT_FALSE(fs::exists(folder_ / "run"));
  f = train("deep/run", {"rollout.rollout_max_response_len=100000"});
  EXPECT_GT(f.status, 0) << f.text();
  EXPECT_FALSE(fs::exists(folder_ / "deep"));
  for (const std::vector<std::string>& flags : {std::vector<std::string>{}, {"--dry-run"}}) {
    f = train("run", {"debug.load_rollout=" + (folder_ / "absent")}, flags);
    EXPECT_EQ(f.status, 2) << f.text();
    expect_mentions(f, {folder_ / "absent", "debug.load_rollout"});
    EXPECT_FALSE(fs::exists(folder_ / "run"));
  }
  f = train("run", {}, {"--dry-run"});
  EXPECT_EQ(f.status, 0) << f.text();
  EXPECT_FALSE(fs::exists(folder_ / "run"));
}

// Fails at the start, not after the last rollout: as root, permissions alone do not show that /proc
// is not writable.
TEST_P(Start, TriesTheExport) {
  const Finished f = train("run", {"checkpoint.save_hf=/proc/slimexx_export/hf"});
  EXPECT_EQ(f.status, 3) << f.text();
  expect_mentions(f, {"/proc/slimexx_export"});
  EXPECT_FALSE(fs::exists(folder_ / "run"));
  const Finished good = train("run", {"checkpoint.save_hf=" + (folder_ / "hf")});
  EXPECT_EQ(good.status, 0) << good.text();
  EXPECT_FALSE(fs::exists(folder_ / "hf.try"));
}

INSTANTIATE_TEST_SUITE_P(Ranks, Start, testing::Values(0, 2));

// If ranks read different files, the run does not start.
TEST(StartOfRanks, WantsOneConfiguration) {
  if (const std::string reason = why_no_ranks(); !reason.empty()) GTEST_SKIP() << reason;
  const Folder folder;
  make_checkpoint(folder, "models/llama");
  make_prompts(folder);
  auto words = train_arguments(folder, folder / "run", {"optimizer.lr=${env:SLX_LR}"});
  const Finished f = run_slimexx(
      2, words, {"sh", "-c", "export SLX_LR=1e-$((3 + OMPI_COMM_WORLD_RANK)); exec \"$@\"", "sh"});
  EXPECT_EQ(f.status, 2) << f.text();
  expect_mentions(f, {"rank 1 of 2 failed: its settings differ from those of rank 0: optimizer.lr "
                      "is 1e-04, but 0.001 on rank 0"});
  EXPECT_FALSE(fs::exists(folder / "run"));
}

}  // namespace
}  // namespace slimexx::e2e
