// Tests faults: each ends the whole run soon, reports the reason, and leaves the last checkpoint
// complete.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "e2e/small_run.h"
#include "io/content_hash.h"
#include "reward/http_server.h"

namespace slimexx::e2e {
namespace {

constexpr double kSoon = 30;  // seconds; normally takes one, but the host may be busy

class Failures : public testing::Test {
 protected:
  void SetUp() override {
    make_checkpoint(folder_, "models/glm4_no_bias");
    make_prompts(folder_);
  }
  std::vector<std::string> arguments(const std::vector<std::string>& settings) const {
    return train_arguments(folder_, folder_ / "run", settings);
  }
  Json status() const { return parse_json(read_bytes(folder_ / "run/status.json"), "status.json"); }
  const Folder folder_;
};

void expect_mentions(const Finished& f, const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    EXPECT_NE(f.err.find(text), std::string::npos) << "no \"" << text << "\" in:\n" << f.text();
  }
}

class FailuresOfRanks : public Failures {
 protected:
  void SetUp() override {
    if (const std::string reason = why_no_ranks(); !reason.empty()) GTEST_SKIP() << reason;
    Failures::SetUp();
  }
};

TEST_F(FailuresOfRanks, OneThatCannotReadItsFileEndsAll) {
  std::filesystem::create_directories(folder_ / "elsewhere");
  // The path of the prompts is relative to the working folder, and rank 1 has another working
  // folder.
  const std::string script = "cd \"" + folder_.path() +
                             "\"; [ \"$OMPI_COMM_WORLD_RANK\" = 1 ] && cd elsewhere; exec \"$@\"";
  const Finished f =
      run_slimexx(2, arguments({"data.prompt_data=prompts.jsonl"}), {"sh", "-c", script, "sh"});
  EXPECT_GT(f.status, 0) << f.text();
  EXPECT_LT(f.seconds, kSoon);
  expect_mentions(f, {"rank 1 of 2 failed", "prompts.jsonl"});
}

TEST_F(FailuresOfRanks, OneThatIsKilledEndsAll) {
  const std::string rows = folder_ / "run/metrics.jsonl";
  Program program(3, arguments({"rollout.num_rollout=100000", "checkpoint.save_interval=1"}));
  ASSERT_TRUE(program.wait_until([&] { return read_bytes(rows).size() > 2000; }));
  const auto start = std::chrono::steady_clock::now();
  program.signal_rank(2, SIGKILL);
  const Finished f = program.wait();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_GT(f.status, 0) << f.text();
  EXPECT_LT(took.count(), kSoon);
  EXPECT_NE((f.out + f.err).find("signal 9"), std::string::npos) << f.text();
  expect_mentions(f, {"rank 2 died (host "});
  EXPECT_EQ(status().at("state"), "failed");
  EXPECT_EQ(status().at("failure").at("rank"), 2);
  EXPECT_EQ(status().at("error").get<std::string>().find("rank 2 died (host "), 0u) << f.text();
  EXPECT_EQ(f.err.find("stopping: "), std::string::npos) << f.text();
}

// The other ranks wait in the exchange of samples: the failing rank must not wait for them.
TEST_F(FailuresOfRanks, OneWhoseRewardsStayAwayEndsAll) {
  const HttpServer server([](const std::string&) { return HttpAnswer{200, "1"}; });
  const std::string script =
      "unset no_proxy NO_PROXY; [ \"$OMPI_COMM_WORLD_RANK\" = 1 ] && "
      "export http_proxy=http://127.0.0.1:1; exec \"$@\"";
  const Finished f = run_slimexx(
      2,
      arguments({"reward.rm_type=remote", "reward.rm_url=" + server.url(), "reward.rm_retries=1",
                 "rollout.num_rollout=20", "rollout.max_running_requests=4"}),
      {"sh", "-c", script, "sh"});
  EXPECT_GT(f.status, 0) << f.text();
  EXPECT_LT(f.seconds, kSoon);
  expect_mentions(f, {"rank 1 of 2 failed", server.url()});
  EXPECT_EQ(status().at("state"), "failed");
  EXPECT_EQ(f.err.find("stopping: "), std::string::npos) << f.text();
}

// Runs on one rank or two. The samples of earlier rollouts are not lost, and the resumed run ends
// like a run without a fault.
TEST_F(FailuresOfRanks, RewardServiceThatGoesAwayLeavesACheckpoint) {
  for (const int ranks : {0, 2}) {
    SCOPED_TRACE(ranks);
    std::atomic<int> answers = 0;
    std::atomic<bool> is_gone = false;
    const HttpServer server([&](const std::string& body) {
      if (is_gone && ++answers > 40) return HttpAnswer{500, "gone"};
      return HttpAnswer{200, body.size() % 2 == 0 ? "1" : "0"};
    });
    const auto settings = [&](const std::string& run_dir) {
      return train_arguments(
          folder_, folder_ / run_dir,
          {"reward.rm_type=remote", "reward.rm_url=" + server.url(), "reward.rm_retries=1",
           "reward.on_failure=stop", "rollout.num_rollout=5",
           "checkpoint.save_hf=" + (folder_ / (run_dir + "/hf"))});
    };
    const std::string whole = "whole_" + std::to_string(ranks);
    const std::string cut = "cut_" + std::to_string(ranks);
    ASSERT_EQ(run_slimexx(ranks, settings(whole)).status, 0);
    is_gone = true;  // fails in the third rollout of sixteen samples
    Finished f = run_slimexx(ranks, settings(cut));
    EXPECT_EQ(f.status, 4) << f.text();
    EXPECT_LT(f.seconds, kSoon);
    expect_mentions(f, {server.url(), "saved the state after 2 rollouts", "--resume"});
    const Json told = parse_json(read_bytes(folder_ / (cut + "/status.json")), "status.json");
    EXPECT_EQ(told.at("state"), "failed");
    is_gone = false;
    auto resumed = settings(cut);
    resumed.emplace_back("--resume");
    f = run_slimexx(ranks, resumed);
    ASSERT_EQ(f.status, 0) << f.text();
    expect_mentions(f, {"at rollout 2"});
    EXPECT_EQ(read_bytes(folder_ / (cut + "/hf/model.safetensors")),
              read_bytes(folder_ / (whole + "/hf/model.safetensors")));
  }
}

// A stopped process answers nothing, and MPI would wait for it forever.
TEST_F(FailuresOfRanks, OneThatIsStoppedIsNamed) {
  for (const int stopped : {0, 1}) {
    SCOPED_TRACE(stopped);
    const std::string run_dir = folder_ / ("stopped_" + std::to_string(stopped));
    Program program(2,
                    train_arguments(folder_, run_dir,
                                    {"rollout.num_rollout=100000", "parallel.rank_silence_warn_s=1",
                                     "parallel.rank_silence_limit_s=4"}));
    ASSERT_TRUE(
        program.wait_until([&] { return read_bytes(run_dir + "/metrics.jsonl").size() > 2000; }));
    const auto start = std::chrono::steady_clock::now();
    program.signal_rank(stopped, SIGSTOP);
    const Finished f = program.wait();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    EXPECT_GT(f.status, 0) << f.text();
    EXPECT_LT(took.count(), kSoon);
    const std::string name = "rank " + std::to_string(stopped);
    expect_mentions(
        f, {name + " has been stopped for 1 s (host ", name + " has been stopped for 4 s (host "});
    const Json told = parse_json(read_bytes(run_dir + "/status.json"), "status.json");
    EXPECT_EQ(told.at("state"), "failed");
    EXPECT_NE(told.at("error").get<std::string>().find(name + " has been stopped for 4 s"),
              std::string::npos);
    EXPECT_EQ(told.at("failure").at("rank"), stopped);
  }
}

// If mpirun is ended, ranks die one by one: none of them is the cause.
TEST_F(FailuresOfRanks, LauncherThatIsEndedNamesNobody) {
  std::atomic<bool> is_asked = false, is_over = false;
  const HttpServer server([&](const std::string&) {
    is_asked = true;
    for (int i = 0; i < 80 && !is_over; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return HttpAnswer{200, "1"};
  });
  Program program(3, arguments({"reward.rm_type=remote", "reward.rm_url=" + server.url()}),
                  {"env", "-u", "http_proxy", "-u", "HTTP_PROXY"});
  ASSERT_TRUE(program.wait_until([&] { return is_asked.load(); }));
  program.signal_launcher(SIGTERM);
  const Finished f = program.wait();
  is_over = true;
  EXPECT_GT(f.status, 0) << f.text();
  // mpirun of Open MPI 5 passes the signal on, but ends before it has passed on the output.
  if (open_mpi_version() < 5)
    expect_mentions(f, {"mpirun ends this run, because a rank failed or mpirun was stopped"});
  EXPECT_EQ(f.err.find("died"), std::string::npos) << f.text();
  EXPECT_EQ(status().at("state"), "running");
}

TEST_F(FailuresOfRanks, OneThatIsStoppedForAWhileIsWaitedFor) {
  const std::string rows = folder_ / "run/metrics.jsonl";
  Program program(2, arguments({"rollout.num_rollout=100000", "parallel.rank_silence_warn_s=1",
                                "parallel.rank_silence_limit_s=60"}));
  ASSERT_TRUE(program.wait_until([&] { return read_bytes(rows).size() > 2000; }));
  program.signal_rank(1, SIGSTOP);
  std::this_thread::sleep_for(std::chrono::seconds(4));
  program.signal_rank(1, SIGCONT);
  const size_t before = read_bytes(rows).size();
  ASSERT_TRUE(program.wait_until([&] { return read_bytes(rows).size() > before + 2000; }));
  // Wait long enough for several heartbeat checks and for more rows.
  std::this_thread::sleep_for(std::chrono::seconds(3));
  program.signal_launcher(SIGUSR1);
  const Finished f = program.wait();
  EXPECT_EQ(f.status, 130) << f.text();
  expect_mentions(f, {"rank 1 has been stopped for 1 s", "rank 1 is back"});
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/ranks"));
}

TEST_F(Failures, RunFolderThatIsRemovedEndsTheRun) {
  const std::string rows = folder_ / "run/metrics.jsonl";
  Program program(0, arguments({"rollout.num_rollout=40", "checkpoint.save_interval=5"}));
  ASSERT_TRUE(program.wait_until([&] { return read_bytes(rows).size() > 2000; }));
  std::error_code ignored;
  std::filesystem::remove_all(folder_ / "run", ignored);
  const Finished f = program.wait();
  EXPECT_EQ(f.status, 3) << f.text();
  EXPECT_EQ(f.err.find("  hint: report"), std::string::npos) << f.text();
}

// The trace is written when the run ends, for any reason.
TEST_F(Failures, SignalWithATraceStopsCleanly) {
  const std::string rows = folder_ / "run/metrics.jsonl";
  Program program(0, arguments({"rollout.num_rollout=100000", "observe.trace=true"}));
  ASSERT_TRUE(program.wait_until([&] { return !read_bytes(rows).empty(); }));
  program.signal(SIGTERM);
  const Finished f = program.wait();
  EXPECT_EQ(f.status, 130) << f.text();
  EXPECT_EQ(status().at("state"), "interrupted");
  EXPECT_GT(read_bytes(folder_ / "run/trace/rank_000.json").size(), 100u);
}

// An error between two rollouts: here the folder for dumps is replaced by a file.
TEST_F(Failures, ErrorBetweenRolloutsLeavesACheckpoint) {
  const std::string dumps = folder_ / "dumps";
  Program program(0, arguments({"rollout.num_rollout=100000", "debug.save_rollout=" + dumps}));
  ASSERT_TRUE(
      program.wait_until([&] { return std::filesystem::exists(dumps + "/rollout_000001.jsonl"); }));
  std::filesystem::rename(dumps, dumps + "_moved");
  folder_.put("dumps", "");
  const Finished f = program.wait();
  EXPECT_EQ(f.status, 3) << f.text();
  expect_mentions(f, {"saved the state after ", "--resume"});
  EXPECT_EQ(status().at("state"), "failed");
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run/checkpoints/latest"));
}

TEST_F(Failures, BadConfigurationNamesEveryFault) {
  const Finished f =
      run_slimexx(0, arguments({"rollout.rollout_batch_sise=4", "rollout.rollout_temperature=-1",
                                "train.global_batch_size=7", "rl.advantage_estimator=grop",
                                "parallel.tensor_model_parallel_size=2", "eval.eval_interval=1"}));
  EXPECT_EQ(f.status, 2) << f.text();
  expect_mentions(f, {"rollout_batch_sise", "rollout_batch_size", "rollout_temperature", "grop"});
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run")) << "a refused run wrote to disk";
}

TEST_F(Failures, ContradictionsAreNamedTogether) {
  const Finished f = run_slimexx(
      0, arguments({"train.global_batch_size=7", "parallel.tensor_model_parallel_size=2",
                    "eval.eval_interval=1", "rl.use_kl_loss=true"}));
  EXPECT_EQ(f.status, 2) << f.text();
  expect_mentions(
      f, {"global_batch_size", "tensor_model_parallel_size", "eval_prompt_data", "ref_load"});
}

// The fault is found when the run starts, not when its first checkpoint is due.
TEST_F(Failures, CheckpointsThatCannotBeWrittenStopTheStart) {
  folder_.put("file", "");
  const std::string save = folder_ / "file/below/checkpoints";
  const Finished f =
      run_slimexx(0, arguments({"checkpoint.save=" + save, "checkpoint.save_interval=1"}));
  EXPECT_EQ(f.status, 3) << f.text();
  expect_mentions(f, {"cannot write checkpoints", folder_ / "file", "checkpoint.save"});
  EXPECT_EQ(read_bytes(folder_ / "run/metrics.jsonl"), "") << "it began";
  const Finished elsewhere = run_slimexx(
      0, arguments({"checkpoint.save=" + (folder_ / "new/deep"), "checkpoint.save_interval=3"}));
  EXPECT_EQ(elsewhere.status, 0) << elsewhere.text();
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
    EXPECT_EQ(entry.path().string().find("write_test"), std::string::npos) << entry.path();
}

TEST_F(Failures, MissingFoldersAreNamed) {
  Finished f = run_slimexx(0, arguments({"model.hf_checkpoint=" + (folder_ / "absent")}));
  EXPECT_EQ(f.status, 2) << f.text();
  expect_mentions(f, {folder_ / "absent"});
  std::vector<std::string> resume = arguments({});
  resume.emplace_back("--resume");
  f = run_slimexx(0, resume);
  EXPECT_EQ(f.status, 2) << f.text();
  expect_mentions(f, {"no complete checkpoint", folder_ / "run/checkpoints"});
}

TEST_F(Failures, ModelThatDivergedStopsTheRun) {
  const Finished f = run_slimexx(0, arguments({"optimizer.lr=1e30", "optimizer.weight_decay=0"}));
  EXPECT_EQ(f.status, 4) << f.text();
  expect_mentions(f, {"NaN", "learning rate"});
  EXPECT_EQ(status().at("state"), "failed");
}

// Makes dumps of rollouts. In a poisoned dump the ratio of one sample is infinite, and so is its
// gradient.
class SkippedSteps : public Failures, public testing::WithParamInterface<int> {
 protected:
  void SetUp() override {
    const std::string reason = GetParam() > 0 ? why_no_ranks() : "";
    if (!reason.empty()) GTEST_SKIP() << reason;
    Failures::SetUp();
    const Finished f = run_slimexx(
        0,
        train_arguments(folder_, folder_ / "first", {"debug.save_rollout=" + (folder_ / "made")}));
    ASSERT_EQ(f.status, 0) << f.text();
  }
  void put_dump(const std::string& name, int rollout, bool is_poisoned) const {
    std::string lines;
    const std::string made = folder_ / ("made/rollout_00000" + std::to_string(rollout) + ".jsonl");
    for (Json sample : read_rows(made)) {
      sample["advantage"] = sample["sample"].get<int>() % 2 == 0 ? -1 : 1;
      sample["old_log_probs"] = sample["rollout_log_probs"];
      if (is_poisoned && sample["group"].get<int>() % 4 == 2 && sample["sample"] == 0)
        sample["old_log_probs"][0] = -1e30;
      lines += sample.dump() + "\n";
    }
    folder_.put(name, lines);
  }
  Finished train(const std::string& dumps, const std::string& run_dir) const {
    return run_slimexx(GetParam(),
                       train_arguments(folder_, folder_ / run_dir,
                                       {"debug.load_rollout=" + (folder_ / dumps),
                                        "train.max_skipped_steps=2", "rollout.num_rollout=9",
                                        "checkpoint.save_hf=" + (folder_ / (run_dir + "/hf"))}));
  }
};

TEST_P(SkippedSteps, LeaveTheWeightsAlone) {
  put_dump("clean/0", 0, false);
  put_dump("clean/1", 1, false);
  put_dump("mixed/0", 0, false);
  put_dump("mixed/0_poisoned", 2, true);
  put_dump("mixed/1", 1, false);
  Finished f = train("clean", "clean_run");
  ASSERT_EQ(f.status, 0) << f.text();
  f = train("mixed", "mixed_run");
  ASSERT_EQ(f.status, 0) << f.text();
  expect_mentions(
      f, {"rollout 1 step 0: NaN or Inf gradients, the optimizer step is skipped (1 so far)"});
  const auto rows = read_rows(folder_ / "mixed_run/metrics.jsonl");
  ASSERT_EQ(rows.size(), 3u);
  for (const size_t i : {0u, 1u, 2u})
    EXPECT_EQ(number(rows[i], "train/skipped_steps"), i == 1 ? 1 : 0);
  const auto status_of = [&](const std::string& run_dir) {
    return parse_json(read_bytes(folder_ / (run_dir + "/status.json")), "status.json");
  };
  EXPECT_EQ(status_of("mixed_run").at("state"), "done");
  EXPECT_EQ(status_of("mixed_run").at("warning"),
            "1 of 3 updates were skipped for NaN or Inf gradients");
  EXPECT_TRUE(status_of("clean_run").at("warning").is_null());
  EXPECT_EQ(read_bytes(folder_ / "mixed_run/hf/model.safetensors"),
            read_bytes(folder_ / "clean_run/hf/model.safetensors"));
}

TEST_P(SkippedSteps, StopTheRunAfterTheSetNumber) {
  put_dump("dumps/0", 0, false);
  for (const char* name : {"dumps/1", "dumps/2", "dumps/3", "dumps/4"}) put_dump(name, 2, true);
  const Finished f = train("dumps", "run");
  EXPECT_EQ(f.status, 4) << f.text();
  expect_mentions(f, {"the optimizer step is skipped (3 so far)", "max_skipped_steps",
                      "3 optimizer steps in a row had NaN or Inf gradients"});
  EXPECT_EQ(f.err.find("(4 so far)"), std::string::npos) << f.err;
  EXPECT_EQ(status().at("state"), "failed");
}

// Five of nine steps are skipped, never three in a row; the schedule does not advance for these.
TEST_P(SkippedSteps, CountInARowAndLeaveTheScheduleAlone) {
  const bool poisoned[] = {false, true, false, true, true, false, true, true, false};
  for (int i = 0; i < 9; ++i)
    put_dump("dumps/" + std::to_string(i), poisoned[i] ? 2 : 0, poisoned[i]);
  const Finished f = run_slimexx(
      GetParam(),
      train_arguments(folder_, folder_ / "run",
                      {"debug.load_rollout=" + (folder_ / "dumps"), "train.max_skipped_steps=2",
                       "rollout.num_rollout=9", "optimizer.lr_warmup_iters=20"}));
  ASSERT_EQ(f.status, 0) << f.text();
  const auto rows = read_rows(folder_ / "run/metrics.jsonl");
  ASSERT_EQ(rows.size(), 9u);
  for (size_t i = 1; i < 9; ++i) {
    const double before = number(rows[i - 1], "train/lr"), now = number(rows[i], "train/lr");
    if (poisoned[i - 1]) {
      EXPECT_EQ(now, before) << i << ": the step before was skipped";
    } else {
      EXPECT_GT(now, before) << i;
    }
  }
}

// A run that is too short to exceed max_skipped_steps must still fail.
TEST_P(SkippedSteps, OfAWholeRunOrItsEndFailIt) {
  put_dump("whole/0", 2, true);
  put_dump("ending/0", 0, false);
  for (const char* name : {"ending/1", "ending/2"}) put_dump(name, 2, true);
  const std::pair<const char*, const char*> kCases[] = {
      {"whole", "no optimizer step was applied: all 1 had NaN or Inf gradients"},
      {"ending", "training diverged: the last 2 of 3 optimizer steps had NaN or Inf gradients"}};
  for (const auto& [dumps, words] : kCases) {
    const std::string run_dir = std::string(dumps) + "_run";
    const Finished f = train(dumps, run_dir);
    EXPECT_EQ(f.status, 4) << f.text();
    expect_mentions(f, {words, "optimizer.lr"});
    const Json status = parse_json(read_bytes(folder_ / (run_dir + "/status.json")), "status");
    EXPECT_EQ(status.at("state"), "failed");
    EXPECT_EQ(status.at("error"), words);
    EXPECT_FALSE(std::filesystem::exists(folder_ / (run_dir + "/hf"))) << "exported";
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, SkippedSteps, testing::Values(0, 2));

class FullDisk : public Failures, public testing::WithParamInterface<bool> {};

// Files above 64 KiB cannot be written: a checkpoint is larger, all other files are smaller.
TEST_P(FullDisk, LeavesThePreviousCheckpointWhole) {
  const std::string async =
      GetParam() ? "checkpoint.async_save=true" : "checkpoint.async_save=false";
  const auto until = [&](int rollouts, bool resumes) {
    auto a = arguments(
        {"rollout.num_rollout=" + std::to_string(rollouts), "checkpoint.save_interval=2", async});
    if (resumes) a.emplace_back("--resume");
    return a;
  };
  ASSERT_EQ(run_slimexx(0, until(2, false)).status, 0);
  const std::string shard = "/step_000002/shard-00000-of-00001.safetensors";
  const std::string before = read_bytes(folder_ / "run/checkpoints" + shard);
  ASSERT_GT(before.size(), 65536u);

  const Finished f = run_slimexx(0, until(4, true),
                                 {"sh", "-c", "trap '' XFSZ; ulimit -f 128; exec \"$@\"", "sh"});
  EXPECT_GT(f.status, 0) << f.text();
  EXPECT_LT(f.status, 128) << f.text();
  expect_mentions(f, {"step_000004.new/shard-00000-of-00001.safetensors"});
  EXPECT_EQ(status().at("state"), "failed");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/checkpoints/step_000004/manifest.json"));
  EXPECT_EQ(read_bytes(folder_ / "run/checkpoints" + shard), before);

  const Finished again = run_slimexx(0, until(4, true));
  ASSERT_EQ(again.status, 0) << again.text();
  expect_mentions(again, {"at rollout 2", "step_000004 is complete"});
}

INSTANTIATE_TEST_SUITE_P(Async, FullDisk, testing::Bool());

// Counters that are too large for any run would overflow in sums.
TEST_F(Failures, CountersOfACheckpointAreCounts) {
  const Finished first =
      run_slimexx(0, arguments({"rollout.num_rollout=1", "checkpoint.save_interval=1"}));
  ASSERT_EQ(first.status, 0) << first.text();
  const std::string path = folder_ / "run/checkpoints/step_000001/manifest.json";
  const std::string whole = read_bytes(path);
  std::vector<std::string> resume = arguments({"rollout.num_rollout=2"});
  resume.emplace_back("--resume");
  for (const char* key : {"next_rollout", "adam_steps", "optimizer_steps", "epoch"}) {
    for (const char* value : {"9223372036854775807", "-1"}) {
      const std::string member = '"' + std::string(key) + "\":";
      const size_t at = whole.find(member) + member.size();
      ASSERT_GT(at, member.size()) << key;
      std::string text = whole;
      text.replace(at, text.find_first_of(",}", at) - at, value);
      // The manifest's hash matches its text, so this does not look like accidental damage.
      const size_t covered = text.find("\"content_hash\": \"") + 17;
      text.replace(covered, io::kHashDigits, io::hash_text(text.substr(0, covered)));
      folder_.put("run/checkpoints/step_000001/manifest.json", text);
      const Finished f = run_slimexx(0, resume);
      EXPECT_EQ(f.status, 2) << f.text();
      expect_mentions(f, {"\"" + std::string(key) + "\" of the state is " + value, path});
    }
  }
}

TEST_F(Failures, DamagedCheckpointIsNotResumed) {
  ASSERT_EQ(run_slimexx(0, arguments({"checkpoint.save_interval=3"})).status, 0);
  const std::string name = "run/checkpoints/step_000003/shard-00000-of-00001.safetensors";
  std::string bytes = read_bytes(folder_ / name);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  folder_.put(name, bytes);
  auto resume = arguments({"rollout.num_rollout=4"});
  resume.emplace_back("--resume");
  const Finished f = run_slimexx(0, resume);
  EXPECT_EQ(f.status, 2) << f.text();
  expect_mentions(f, {"shard-00000-of-00001.safetensors"});
}

}  // namespace
}  // namespace slimexx::e2e
