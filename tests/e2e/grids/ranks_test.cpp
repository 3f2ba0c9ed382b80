// Tests data-parallel ranks: from equal weights, generation gives the same bits on any number of
// ranks; weights after updates differ only by the rounding of sums over ranks. Ranks that are
// threads give the same bits as ranks that are processes.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>

#include "e2e/small_run.h"
#include "e2e/tensor_files.h"

namespace slimexx::e2e {
namespace {

// Absolute bounds for weights up to about 1 that move by lr 1e-2 per step: a few units in the last
// place. Gradients differ only by the order of sums over ranks; adam_eps keeps gradients that are
// pure rounding from becoming full steps. Measured: up to 2.4e-7.
constexpr double kFirstStepBound = 5e-7;
constexpr double kFinalBound = 2e-6;

class Ranks : public testing::TestWithParam<Family> {
 protected:
  void SetUp() override {
    if (const std::string reason = why_no_ranks(); !reason.empty()) GTEST_SKIP() << reason;
  }
};

std::vector<std::string> settings_of(const std::string& run_dir) {
  return {"rollout.num_rollout=2",
          "rollout.page_size=4",
          "rollout.max_total_tokens=132",
          "rollout.chunked_prefill_size=7",
          "rollout.rollout_temperature=0.7",
          "optimizer.adam_eps=1e-3",
          "numerics.recompute_old_log_probs=true",
          "debug.save_rollout=" + run_dir + "/rollouts",
          "debug.dump_weights=" + run_dir + "/first",
          "debug.check_weight_hash=true",
          "checkpoint.save_hf=" + run_dir + "/hf"};
}

// Returns the hashes in the log: those of the weights at the start and after each rollout.
std::vector<std::string> weight_hashes(const std::string& log) {
  const std::regex line("weights handed over in .*; hash ([0-9a-f]{16}) on both sides");
  std::vector<std::string> hashes;
  for (std::sregex_iterator it(log.begin(), log.end(), line), end; it != end; ++it)
    hashes.push_back((*it)[1]);
  return hashes;
}

void expect_close(const std::string& path, const std::string& expected, double bound) {
  const Tensors a = read_tensors(path), b = read_tensors(expected);
  ASSERT_GT(b.size(), 0u) << expected;
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, values] : b) {
    const Difference d = compare(a.at(name).data, values.data);
    EXPECT_LE(d.max_abs, bound) << name << "[" << d.where << "] in " << path;
  }
}

TEST_P(Ranks, GenerateTheSameBitsAndTrainToTheSameWeights) {
  const Folder folder;
  make_checkpoint(folder, GetParam().model, "{}", "model", GetParam().seed);
  make_prompts(folder);
  const std::string alone = folder / "ranks_0";  // without a launcher
  std::string first_hash;
  for (const int num_ranks : {0, 1, 2, 4}) {
    SCOPED_TRACE(num_ranks);
    const std::string run_dir = folder / ("ranks_" + std::to_string(num_ranks));
    const Finished f =
        run_slimexx(num_ranks, train_arguments(folder, run_dir, settings_of(run_dir)));
    ASSERT_EQ(f.status, 0) << f.text();
    const auto hashes = weight_hashes(f.err);
    ASSERT_EQ(hashes.size(), 3u) << f.err;
    if (num_ranks == 0) first_hash = hashes[0];
    EXPECT_EQ(hashes[0], first_hash);
    EXPECT_NE(hashes[1], hashes[0]);
    EXPECT_NE(hashes[2], hashes[1]);
    const auto rows = read_rows(run_dir + "/metrics.jsonl");
    ASSERT_EQ(rows.size(), 2u);
    for (const Json& row : rows) {
      EXPECT_EQ(number(row, "train/train_rollout_logprob_max_diff"), 0) << row.dump();
    }
    const std::string dump = "/rollouts/rollout_000000.jsonl";
    EXPECT_GT(read_bytes(alone + dump).size(), 1000u);
    EXPECT_EQ(read_bytes(run_dir + dump), read_bytes(alone + dump));
    expect_close(run_dir + "/first/weights.safetensors", alone + "/first/weights.safetensors",
                 kFirstStepBound);
    expect_close(run_dir + "/hf/model.safetensors", alone + "/hf/model.safetensors", kFinalBound);
  }
}

// Several ranks together write the same folder as one process, both as processes and as threads.
TEST_P(Ranks, WriteTheFolderThatOneRankWrites) {
  const Folder folder;
  make_checkpoint(folder, GetParam().model);
  make_prompts(folder);
  const auto convert = [&](int num_ranks, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "convert-hf");
    const Finished f = run_slimexx(num_ranks, arguments);
    ASSERT_EQ(f.status, 0) << f.text();
  };
  const auto expect_same = [&](const std::string& name, const std::string& expected) {
    for (const auto& entry : std::filesystem::directory_iterator(folder / expected)) {
      const std::string file = entry.path().filename();
      EXPECT_TRUE(read_bytes(folder / (name + "/" + file)) == read_bytes(entry.path()))
          << name << "/" << file;
    }
  };
  for (const int n : {0, 2, 3}) {
    const std::string ranks = std::to_string(n);
    convert(n, {"--hf-checkpoint", folder / "model", "--save", folder / ("sharded" + ranks),
                "--verify"});
    convert(n, {"--to", "hf", "--load", folder / ("sharded" + ranks), "--save",
                folder / ("back" + ranks), "--verify"});
    expect_same("sharded" + ranks, "sharded0");
    expect_same("back" + ranks, "model");
  }
  // Without an optimizer step, ranks export the weights that they loaded.
  for (const bool are_threads : {false, true}) {
    for (const int n : {1, 2, 3}) {
      const std::string name = (are_threads ? "threads" : "processes") + std::to_string(n);
      auto arguments = train_arguments(
          folder, folder / (name + "_run"),
          {"rollout.num_rollout=1", "optimizer.lr=0", "checkpoint.save_hf=" + (folder / name)});
      if (are_threads)
        arguments.insert(arguments.begin() + 1, "--thread-ranks=" + std::to_string(n));
      const Finished f = run_slimexx(are_threads ? 0 : n, arguments);
      ASSERT_EQ(f.status, 0) << f.text();
      expect_same(name, "model");
    }
  }
}

// A whole run, resumed after the second of three rollouts.
Finished run_in_two(const Folder& folder, int num_ranks, bool are_threads,
                    const std::string& run_dir) {
  Finished f;
  for (const int rollouts : {2, 3}) {
    auto arguments = train_arguments(
        folder, run_dir,
        {"rollout.num_rollout=" + std::to_string(rollouts), "checkpoint.save_interval=1",
         "observe.trace=true", "checkpoint.save_hf=" + run_dir + "/hf" + std::to_string(rollouts)});
    if (rollouts == 3) arguments.insert(arguments.begin() + 1, "--resume");
    if (are_threads)
      arguments.insert(arguments.begin() + 1, "--thread-ranks=" + std::to_string(num_ranks));
    f = run_slimexx(are_threads ? 0 : num_ranks, arguments);
    if (f.status != 0) return f;
  }
  return f;
}

TEST(ThreadRanks, KeepLogsAndTracesApart) {
  const Folder folder;
  make_checkpoint(folder, families()[3].model);
  make_prompts(folder);
  const Finished f = run_in_two(folder, 3, true, folder / "run");
  ASSERT_EQ(f.status, 0) << f.text();
  for (int rank = 0; rank < 3; ++rank) {
    SCOPED_TRACE(rank);
    const std::string number = std::to_string(rank);
    const Json trace =
        parse_json(read_bytes(folder / ("run/trace/rank_00" + number + ".json")), "trace");
    int num_steps = 0;
    for (const Json& event : trace.at("traceEvents")) {
      EXPECT_EQ(event.at("pid"), rank);
      num_steps += event.at("name") == "step" ? 1 : 0;
    }
    EXPECT_EQ(num_steps, 1);  // the resumed run's
    const std::string log = read_bytes(folder / ("run/logs/rank_00" + number + ".log"));
    EXPECT_EQ(log.find("slimexx grpo") != std::string::npos, rank == 0) << log;
  }
}

TEST(ThreadRanks, TrainToTheBitsOfProcesses) {
  if (const std::string reason = why_no_ranks(); !reason.empty()) GTEST_SKIP() << reason;
  const Folder folder;
  make_checkpoint(folder, families()[3].model);
  make_prompts(folder);
  for (const int num_ranks : {2, 3}) {
    SCOPED_TRACE(num_ranks);
    const std::string threads = folder / ("threads_" + std::to_string(num_ranks)),
                      processes = folder / ("processes_" + std::to_string(num_ranks));
    const Finished f = run_in_two(folder, num_ranks, true, threads),
                   g = run_in_two(folder, num_ranks, false, processes);
    ASSERT_EQ(f.status, 0) << f.text();
    ASSERT_EQ(g.status, 0) << g.text();
    for (const char* path : {"/hf2/model.safetensors", "/hf3/model.safetensors"}) {
      EXPECT_GT(read_bytes(processes + path).size(), 1000u);
      EXPECT_TRUE(read_bytes(threads + path) == read_bytes(processes + path)) << path;
    }
  }
}

// Three samples per step on eight ranks: five ranks run an empty microbatch and add zeros, so the
// weights are those of three ranks.
TEST(ThreadRanks, TrainOnFewerSamplesThanRanks) {
  const Folder folder;
  make_checkpoint(folder, families()[3].model);
  make_prompts(folder);
  std::string expected;
  for (const int num_ranks : {3, 8}) {
    const std::string run_dir = folder / ("run_" + std::to_string(num_ranks));
    auto arguments =
        train_arguments(folder, run_dir,
                        {"rollout.num_rollout=2", "rollout.rollout_batch_size=1",
                         "rollout.n_samples_per_prompt=3", "train.max_tokens_per_gpu=1",
                         "optimizer.clip_grad=0", "checkpoint.save_hf=" + run_dir + "/hf"});
    arguments.insert(arguments.begin() + 1, "--thread-ranks=" + std::to_string(num_ranks));
    const Finished f = run_slimexx(0, arguments);
    ASSERT_EQ(f.status, 0) << f.text();
    const std::string weights = read_bytes(run_dir + "/hf/model.safetensors");
    EXPECT_GT(weights.size(), 1000u);
    if (expected.empty()) expected = weights;
    EXPECT_TRUE(weights == expected) << num_ranks << " ranks";
  }
}

// A fault on one rank ends the process, and the message names the rank.
TEST(ThreadRanks, FailureNamesTheRank) {
  const Folder folder;
  make_checkpoint(folder, families()[3].model);
  make_prompts(folder);
  auto arguments = train_arguments(folder, folder / "run", {"reward.rm_type=nobody"});
  arguments.insert(arguments.begin() + 1, "--thread-ranks=3");
  const Finished f = run_slimexx(0, arguments);
  EXPECT_EQ(f.status, 2) << f.text();
  EXPECT_NE(f.err.find("rank 0 of 3 failed"), std::string::npos) << f.text();
  EXPECT_NE(f.err.find("nobody"), std::string::npos) << f.text();
}

TEST(ThreadRanks, AreOfOneProcess) {
  if (const std::string reason = why_no_ranks(); !reason.empty()) GTEST_SKIP() << reason;
  const Finished f = run_slimexx(2, {"train", "--thread-ranks", "2"});
  EXPECT_NE(f.status, 0) << f.text();
  EXPECT_NE(f.err.find("--thread-ranks"), std::string::npos) << f.text();
}

INSTANTIATE_TEST_SUITE_P(Families, Ranks, testing::ValuesIn(families()),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace slimexx::e2e
