// Tests resuming: a run that was stopped or killed and then resumed ends with the same bytes as an
// uninterrupted one.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "e2e/small_run.h"
#include "e2e/tensor_files.h"

namespace slimexx::e2e {
namespace {

namespace fs = std::filesystem;

constexpr int kRollouts = 8;

// Path below `root` -> content.
std::map<std::string, std::string> read_folder(const std::string& root) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (!entry.is_regular_file()) continue;
    files[fs::relative(entry.path(), root).string()] = read_bytes(entry.path().string());
  }
  return files;
}

void expect_same_folder(const std::string& got, const std::string& expected) {
  const auto a = read_folder(got), b = read_folder(expected);
  ASSERT_FALSE(b.empty()) << expected;
  for (const auto& [name, bytes] : b) {
    const auto it = a.find(name);
    ASSERT_NE(it, a.end()) << got << " has no " << name;
    if (it->second == bytes) continue;
    const size_t shorter = std::min(it->second.size(), bytes.size());
    size_t at = 0;
    while (at < shorter && it->second[at] == bytes[at]) ++at;
    ADD_FAILURE() << got << "/" << name << " differs at byte " << at << ": "
                  << it->second.substr(at, 40) << " | " << bytes.substr(at, 40);
  }
  EXPECT_EQ(a.size(), b.size()) << got << " has files that " << expected << " lacks";
}

// Removes times, memory and the share of cached tokens from the rows: a resumed engine starts with
// an empty cache, and timing decides which rank generates which sample.
std::vector<Json> steady_rows(const std::string& run_dir) {
  std::vector<Json> rows;
  for (const Json& row : read_rows(run_dir + "/metrics.jsonl")) {
    Json kept = Json::object();
    for (const auto& [key, value] : row.items()) {
      const bool is_cache = key.find("cache") != std::string::npos;
      if (key == "wall_time" || key.starts_with("perf/") || key.starts_with("sys/") || is_cache)
        continue;
      kept[key] = value;
    }
    rows.push_back(std::move(kept));
  }
  return rows;
}

std::vector<std::string> step_folders(const std::string& run_dir) {
  std::vector<std::string> names;
  if (!fs::exists(run_dir + "/checkpoints")) return names;
  for (const auto& entry : fs::directory_iterator(run_dir + "/checkpoints")) {
    if (fs::exists(entry.path() / "manifest.json")) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

size_t num_rows(const std::string& run_dir) {
  const std::string text = read_bytes(run_dir + "/metrics.jsonl");
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

class Resume : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    const std::string reason = wants_ranks() ? why_no_ranks() : "";
    if (!reason.empty()) GTEST_SKIP() << reason;
    make_checkpoint(folder_, "models/qwen3_tied_mqa");
    make_prompts(folder_);
  }
  virtual bool wants_ranks() const { return GetParam() > 1; }
  int launcher_ranks() const { return GetParam() > 1 ? GetParam() : 0; }

  std::vector<std::string> arguments(const std::string& name,
                                     std::vector<std::string> more = {}) const {
    const std::string run_dir = folder_ / name;
    std::vector<std::string> settings = {"rollout.num_rollout=" + std::to_string(kRollouts),
                                         "model.ref_load=" + (folder_ / "model"),
                                         "rl.use_kl_loss=true",
                                         "rl.kl_loss_coef=0.01",
                                         "train.num_steps_per_rollout=2",
                                         "optimizer.lr_decay_style=cosine",
                                         "optimizer.lr_warmup_iters=3",
                                         "checkpoint.save_interval=2",
                                         "checkpoint.keep_last=2",
                                         "checkpoint.save_hf=" + run_dir + "/hf",
                                         "eval.eval_interval=3",
                                         "eval.eval_prompt_data.toy=" + (folder_ / "prompts.jsonl"),
                                         "eval.n_samples_per_eval_prompt=2",
                                         "observe.tensorboard=true"};
    settings.insert(settings.end(), more.begin(), more.end());
    return train_arguments(folder_, run_dir, settings);
  }
  static std::vector<std::string> resumed(std::vector<std::string> arguments) {
    arguments.push_back("--resume");
    return arguments;
  }

  static std::vector<std::string> resumed_if_there(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--resume", "auto"});
    return arguments;
  }

  void run_uninterrupted() {
    const Finished f = run_slimexx(launcher_ranks(), arguments("whole"));
    ASSERT_EQ(f.status, 0) << f.text();
    EXPECT_EQ(step_folders(folder_ / "whole"),
              (std::vector<std::string>{"step_000006", "step_000008"}))
        << "keep_last is 2";
    EXPECT_EQ(num_rows(folder_ / "whole"),
              static_cast<size_t>(kRollouts) + 1);  // plus one before training
  }

  void expect_same_run(const std::string& name) {
    expect_same_folder(folder_ / (name + "/hf"), folder_ / "whole/hf");
    expect_same_folder(folder_ / (name + "/checkpoints/step_000008"),
                       folder_ / "whole/checkpoints/step_000008");
    const auto got = steady_rows(folder_ / name);
    const auto expected = steady_rows(folder_ / "whole");
    EXPECT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
      for (const auto& [key, value] : expected[i].items()) {
        EXPECT_EQ(got[i].value(key, Json()), value) << key << " of row " << i;
      }
      EXPECT_EQ(got[i].size(), expected[i].size()) << "row " << i;
    }
  }

  const Folder folder_;
};

TEST_P(Resume, AfterBeingKilledAtRandom) {
  run_uninterrupted();
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::string run_dir = folder_ / "killed";
  for (int kills = 0; kills < 4; ++kills) {
    Program program(launcher_ranks(), resumed_if_there(arguments("killed")));
    // The kill may hit a rollout, a save or the start of the program.
    const size_t wanted = num_rows(run_dir) + 1 + random() % 3;
    program.wait_until([&] { return num_rows(run_dir) >= wanted; });
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 12000));
    program.signal(SIGKILL);
    program.wait();
  }
  const Finished f = run_slimexx(launcher_ranks(), resumed_if_there(arguments("killed")));
  ASSERT_EQ(f.status, 0) << f.text();
  expect_same_run("killed");
}

// A signal to one rank stops all ranks; so does a signal that the launcher passes on.
void send(Program& program, int number) {
  if (number == SIGTERM) return program.signal_rank(0, number);
  if (number == SIGUSR1) return program.signal_launcher(number);
  program.signal(number);
}

TEST_P(Resume, AfterASignalThatStopsTheRun) {
  run_uninterrupted();
  const std::string run_dir = folder_ / "stopped";
  size_t rows = 2;
  for (const int number : {SIGTERM, SIGUSR1, SIGINT}) {
    SCOPED_TRACE(number);
    Program program(launcher_ranks(),
                    rows == 2 ? arguments("stopped") : resumed(arguments("stopped")));
    ASSERT_TRUE(program.wait_until([&] { return num_rows(run_dir) >= rows; }));
    send(program, number);
    const Finished f = program.wait();
    ASSERT_EQ(f.status, 130) << f.text();
    EXPECT_NE(f.err.find("the state is saved"), std::string::npos) << f.text();
    const Json status = parse_json(read_bytes(run_dir + "/status.json"), "status.json");
    EXPECT_EQ(status.at("state"), "interrupted");
    // The checkpoint is complete and belongs to the last rollout before the stop.
    char last[32];
    snprintf(last, sizeof last, "step_%06d", status.at("step").get<int>());
    ASSERT_FALSE(step_folders(run_dir).empty());
    EXPECT_EQ(step_folders(run_dir).back(), last);
    EXPECT_LE(step_folders(run_dir).size(), 2u);
    rows = num_rows(run_dir) + 1;
  }
  const Finished f = run_slimexx(launcher_ranks(), resumed(arguments("stopped")));
  ASSERT_EQ(f.status, 0) << f.text();
  expect_same_run("stopped");
}

// The resumed run evaluated after the first rollout and wrote a separate row for this.
void expect_made_up(const std::vector<Json>& rows, size_t num_rows) {
  ASSERT_EQ(rows.size(), num_rows);
  EXPECT_EQ(rows[0].dump().find("\"eval/"), std::string::npos) << rows[0].dump();
  for (size_t i = 1; i < num_rows; ++i) {
    EXPECT_EQ(number(rows[i], "step"), static_cast<double>(i - 1));
    EXPECT_EQ(number(rows[i], "eval/step"), static_cast<double>(i - 1));
  }
}

// An evaluation that would take hours ends soon on all ranks, even if only one gets the signal.
TEST_P(Resume, AfterASignalDuringAnEvaluation) {
  constexpr double kSoon = 15;  // seconds, on a busy host
  const auto stop_in_evaluation = [&](const std::vector<std::string>& args, const auto& has_begun) {
    Program program(launcher_ranks(), args);
    EXPECT_TRUE(program.wait_until(has_begun));
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    const auto start = std::chrono::steady_clock::now();
    program.signal_rank(GetParam() - 1, SIGTERM);
    const Finished f = program.wait();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    EXPECT_EQ(f.status, 130) << f.text();
    EXPECT_LT(taken.count(), kSoon);
    EXPECT_NE(f.err.find("was interrupted by a signal: not recorded"), std::string::npos)
        << f.text();
    return f;
  };
  const auto status = [&](const std::string& name) {
    return parse_json(read_bytes(folder_ / (name + "/status.json")), "status.json");
  };
  const std::string endless = "eval.n_samples_per_eval_prompt=20000";

  // The evaluation before training was interrupted: there is nothing to save.
  Finished f = stop_in_evaluation(arguments("before", {endless}), [&] {
    return read_bytes(folder_ / "before/logs/rank_000.log").find("resume  ") != std::string::npos;
  });
  EXPECT_NE(f.err.find("before the first rollout"), std::string::npos) << f.text();
  EXPECT_EQ(read_bytes(folder_ / "before/metrics.jsonl"), "");
  EXPECT_EQ(status("before").at("state"), "interrupted");
  EXPECT_EQ(step_folders(folder_ / "before").size(), 0u);

  // An evaluation after a rollout was interrupted: the rollout is kept.
  const std::vector<std::string> after = {"eval.eval_interval=1",
                                          "eval.skip_eval_before_train=true",
                                          "debug.save_rollout=" + (folder_ / "made")};
  auto endless_after = after;
  endless_after.push_back(endless);
  f = stop_in_evaluation(arguments("after", endless_after),
                         [&] { return fs::exists(folder_ / "made/rollout_000000.jsonl"); });
  EXPECT_NE(f.err.find("the state is saved"), std::string::npos) << f.text();
  const auto rows = read_rows(folder_ / "after/metrics.jsonl");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].dump().find("\"eval/"), std::string::npos) << rows[0].dump();
  EXPECT_EQ(status("after").at("state"), "interrupted");
  EXPECT_EQ(step_folders(folder_ / "after"), (std::vector<std::string>{"step_000001"}));
  auto on = after;
  on.emplace_back("rollout.num_rollout=2");
  f = run_slimexx(launcher_ranks(), resumed(arguments("after", on)));
  EXPECT_EQ(f.status, 0) << f.text();
  expect_made_up(read_rows(folder_ / "after/metrics.jsonl"), 3);

  // The last evaluation was interrupted: the run is not done without it.
  auto last = after;
  last.emplace_back("rollout.num_rollout=1");
  auto endless_last = last;
  endless_last.push_back(endless);
  fs::remove_all(folder_ / "made");
  stop_in_evaluation(arguments("last", endless_last),
                     [&] { return fs::exists(folder_ / "made/rollout_000000.jsonl"); });
  EXPECT_EQ(status("last").at("state"), "interrupted");
  stop_in_evaluation(resumed(arguments("last", endless_last)),  // and it is still due
                     [&] { return status("last").at("state") == "running"; });
  f = run_slimexx(launcher_ranks(), resumed(arguments("last", last)));
  EXPECT_EQ(f.status, 0) << f.text();
  expect_made_up(read_rows(folder_ / "last/metrics.jsonl"), 2);
  EXPECT_EQ(status("last").at("state"), "done");
}

// The bytes are the same whether shards are written during the next rollout or before it.
TEST_P(Resume, FromWhatWasWrittenInTheForeground) {
  run_uninterrupted();
  const Finished f =
      run_slimexx(launcher_ranks(), arguments("sync", {"checkpoint.async_save=false"}));
  ASSERT_EQ(f.status, 0) << f.text();
  expect_same_run("sync");
}

// The decision to resume must not read freed memory: here glibc fills it.
TEST_P(Resume, WhenFreedMemoryIsFilled) {
  Finished f = run_slimexx(launcher_ranks(), arguments("filled", {"rollout.num_rollout=2"}));
  ASSERT_EQ(f.status, 0) << f.text();
  f = run_slimexx(launcher_ranks(), resumed(arguments("filled", {"rollout.num_rollout=4"})),
                  {"env", "MALLOC_PERTURB_=85", "GLIBC_TUNABLES=glibc.malloc.tcache_count=0"});
  ASSERT_EQ(f.status, 0) << f.text();
  EXPECT_NE(f.err.find("at rollout 2"), std::string::npos) << f.text();
  EXPECT_EQ(num_rows(folder_ / "filled"), 5u);  // -1 to 3
}

INSTANTIATE_TEST_SUITE_P(Ranks, Resume, testing::Values(1, 2));

class ResumeElsewhere : public Resume {
  bool wants_ranks() const override { return true; }
};

// Resumes a checkpoint of GetParam() ranks on three ranks: the samples are the same, and weights
// are equal up to rounding.
TEST_P(ResumeElsewhere, OnAnotherNumberOfRanks) {
  constexpr double kBound = 2e-6;  // absolute, as in ranks_test.cpp
  const std::vector<std::string> more = {"optimizer.adam_eps=1e-3", "checkpoint.keep_last=0"};
  Finished f = run_slimexx(launcher_ranks(), arguments("whole", more));
  ASSERT_EQ(f.status, 0) << f.text();
  std::vector<std::string> other = arguments("other", more);
  other.push_back("--resume");
  other.push_back(folder_ / "whole/checkpoints/step_000006");
  f = run_slimexx(GetParam() == 2 ? 3 : 2, other);
  ASSERT_EQ(f.status, 0) << f.text();
  const Tensors a = read_tensors(folder_ / "other/hf/model.safetensors");
  for (const auto& [name, values] : read_tensors(folder_ / "whole/hf/model.safetensors")) {
    const Difference d = compare(a.at(name).data, values.data);
    EXPECT_LE(d.max_abs, kBound) << name << "[" << d.where << "]";
  }
  const auto got = read_rows(folder_ / "other/metrics.jsonl");
  const auto expected = read_rows(folder_ / "whole/metrics.jsonl");
  ASSERT_EQ(got.size(), 2u);
  for (const size_t i : {0u, 1u}) {
    const Json& want = expected[expected.size() - 2 + i];
    for (const char* key : {"step", "rollout/num_tokens", "rollout/raw_reward", "train/lr"}) {
      EXPECT_EQ(number(got[i], key), number(want, key)) << key;
    }
    EXPECT_EQ(number(got[i], "train/train_rollout_logprob_max_diff"), 0);
  }
}

// Going back in the same folder leaves nothing of the abandoned steps.
TEST_P(ResumeElsewhere, WritesAnAbandonedStepAnew) {
  run_uninterrupted();
  folder_.put("whole/checkpoints/step_000008/shard-00000-of-00001.safetensors.tmp.1", "torn");
  std::vector<std::string> back = arguments("whole");
  back.emplace_back("--resume");
  back.push_back(folder_ / "whole/checkpoints/step_000006");
  const int num_ranks = GetParam() == 2 ? 0 : 2;
  const Finished f = run_slimexx(num_ranks, back);
  ASSERT_EQ(f.status, 0) << f.text();
  int64_t shards = 0;
  for (const auto& [name, bytes] : read_folder(folder_ / "whole/checkpoints/step_000008")) {
    if (name.find("shard") == std::string::npos) continue;
    ++shards;
    EXPECT_TRUE(name.ends_with(num_ranks == 2 ? "-of-00002.safetensors" : "-of-00001.safetensors"))
        << name;
  }
  EXPECT_EQ(shards, std::max(1, num_ranks));
}

INSTANTIATE_TEST_SUITE_P(Ranks, ResumeElsewhere, testing::Values(1, 2));

}  // namespace
}  // namespace slimexx::e2e
