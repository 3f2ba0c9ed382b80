// Tests what a run reports: every metric of the catalogue is written by some run, every optimizer
// step has its own row, samples are on disk, and a sample without a grade does not count as 0.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "e2e/small_run.h"
#include "slimexx/observe/metrics.h"

namespace slimexx::e2e {
namespace {

class Report : public testing::Test {
 protected:
  Report() {
    make_checkpoint(folder_, "models/llama3_scaled_tied_biased");
    make_prompts(folder_);
  }
  std::string train(const std::string& name, std::vector<std::string> settings) {
    const Finished f = run_slimexx(0, train_arguments(folder_, folder_ / name, settings));
    EXPECT_EQ(f.status, 0) << f.text();
    log_ = f.err;
    return folder_ / name;
  }
  // Collects the catalogue entries that occur in the files of a run.
  static void note_rows(const std::string& path, std::set<std::string_view>& seen) {
    for (const Json& row : read_rows(path)) {
      for (const auto& [key, value] : row.items()) {
        if (key == "step" || key == "wall_time" || key == "rollout") continue;
        const observe::MetricInfo* info = observe::find_metric(key);
        ASSERT_NE(info, nullptr) << key;
        seen.insert(info->name);
      }
    }
  }
  // For runs that generate nothing.
  static void expect_no_rates(const std::string& run) {
    for (const Json& row : read_rows(run + "/metrics.jsonl"))
      for (const auto& [key, value] : row.items())
        EXPECT_FALSE(key.ends_with("tokens_per_gpu_per_sec") || key.ends_with("tokens_per_sec"))
            << key << " " << value;
  }
  Folder folder_;
  std::string log_;
};

TEST_F(Report, RunsWriteEveryMetric) {
  std::set<std::string_view> seen;
  const auto note = [&](const std::string& run) {
    note_rows(run + "/metrics.jsonl", seen);
    note_rows(run + "/train_steps.jsonl", seen);
  };
  note(train("grpo", {"rl.use_kl_loss=true", "rl.kl_loss_coef=0.01", "rl.use_tis=true",
                      "model.ref_load=" + (folder_ / "model"), "checkpoint.save_interval=1",
                      "eval.eval_interval=1", "eval.eval_rm_type=dapo",
                      "eval.eval_prompt_data={held: " + (folder_ / "prompts.jsonl") + "}"}));
  note(train("dapo", {"reward.rm_type=dapo", "numerics.recompute_old_log_probs=true",
                      "rl.overlong_buffer_len=4", "rl.overlong_filtering=true", "rl.use_opsm=true",
                      "rollout.num_rollout=1"}));
  note(train("rloo",
             {"rl.advantage_estimator=rloo", "rl.kl_coef=0.01", "rollout.num_rollout=1",
              "optimizer.optimizer_cpu_offload=true", "model.ref_load=" + (folder_ / "model")}));
  note(train("filter", {"rollout.dynamic_sampling_filter_path=check_reward_nonzero_std",
                        "rollout.n_samples_per_prompt=2", "rollout.num_rollout=1"}));
  folder_.put("sft.jsonl",
              "{\"prompt\": \"1 + 1 =\", \"response\": \" 2\"}\n"
              "{\"prompt\": \"x\", \"response\": \" y and more\"}\n");
  note(train("sft", {"train.loss_type=sft", "data.prompt_data=" + (folder_ / "sft.jsonl"),
                     "rollout.rollout_batch_size=2", "rollout.n_samples_per_prompt=1",
                     "rollout.num_rollout=1"}));
  expect_no_rates(folder_ / "sft");
  note(
      train("mtp",
            {"model.hf_checkpoint=" + make_checkpoint(folder_, "oracle/glm4_moe", "{}", "with_mtp"),
             "train.enable_mtp_training=true", "train.mtp_num_layers=1", "rollout.num_rollout=1",
             "rollout.speculative_algorithm=EAGLE", "rollout.speculative_gate=false"}));
  const std::string wide =
      make_checkpoint(folder_, "models/qwen3_tied_mqa",
                      R"({"hidden_size": 128, "head_dim": 32, "num_attention_heads": 4,
                          "num_key_value_heads": 2, "intermediate_size": 128})",
                      "wide");
  note(train("fp8", {"model.hf_checkpoint=" + wide, "numerics.fp8=on", "rollout.num_rollout=1"}));
  const std::set<std::string_view> elsewhere = {
      "sys/gpu_mem_peak_gib",  // only on a GPU
      "perf/*_time",           // a span without a metric of its own
  };
  for (const observe::MetricInfo& info : observe::metric_catalogue()) {
    if (elsewhere.contains(info.name)) continue;
    EXPECT_TRUE(seen.contains(info.name)) << info.name << " was written by no run";
  }
}

// Counters of an evaluation are not added to the rollout before it.
TEST_F(Report, EvaluationIsNotCountedAsRollout) {
  // Use another prompt: the rollouts' prompts would be in the prefix cache.
  const std::string held = folder_.put("held.jsonl", R"({"prompt": "# no other", "label": "1"})");
  const std::string set = "eval.eval_prompt_data={held: " + held + "}";
  const auto rows = read_rows(train("with", {"eval.eval_interval=2", set}) + "/metrics.jsonl");
  const auto plain = read_rows(train("without", {}) + "/metrics.jsonl");
  ASSERT_EQ(rows.size(), plain.size() + 1) << "one before training";
  for (size_t r = 0; r < plain.size(); ++r) {
    const Json& row = rows[r + 1];
    for (const char* name : {"perf/decode_steps", "perf/decode_batch", "perf/prefill_tokens",
                             "perf/preemptions", "perf/kv_cache_usage"})
      EXPECT_EQ(number(row, name), number(plain[r], name)) << name << " of rollout " << r;
    EXPECT_LE(number(row, "perf/generate_time") + number(row, "perf/reward_time"),
              number(row, "perf/rollout_time"));
    EXPECT_EQ(row.contains("perf/eval_time"), row.contains("eval/held")) << r;
    EXPECT_GE(number(row, "sys/mem_peak_gib"), number(row, "sys/mem_used_gib"));
  }
}

TEST_F(Report, BeforeIsTheFirstEvaluationOfTheRunAlsoWhenResumed) {
  std::vector<std::string> settings = {
      "checkpoint.save_interval=1", "eval.eval_interval=1", "optimizer.lr=0.05",
      "eval.eval_prompt_data={held: " + (folder_ / "prompts.jsonl") + "}"};
  settings.push_back("rollout.num_rollout=2");
  const std::string run = train("run", settings);
  settings.back() = "rollout.num_rollout=3";
  auto arguments = train_arguments(folder_, run, settings);
  arguments.push_back("--resume");
  const Finished f = run_slimexx(0, arguments);
  ASSERT_EQ(f.status, 0) << f.text();
  const auto rows = read_rows(run + "/metrics.jsonl");
  ASSERT_EQ(rows.size(), 4u);
  const auto length = [&](size_t row) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f", number(rows[row], "eval/held/response_len/mean"));
    return std::string(text);
  };
  ASSERT_NE(length(0), length(3)) << "the two are to be told apart";
  const size_t table = f.err.find("before and after");
  ASSERT_NE(table, std::string::npos) << f.err;
  const size_t line = f.err.find("held", table);
  EXPECT_NE(f.err.substr(line, f.err.find('\n', line) - line).find(" " + length(0) + " "),
            std::string::npos)
      << length(0) << " is not in\n"
      << f.err.substr(table);
}

TEST_F(Report, OptimizerStepsAndSamplesAreKept) {
  const std::string run = train(
      "run", {"train.num_steps_per_rollout=2", "observe.samples_interval=2",
              "observe.log_samples_interval=1", "observe.tensorboard=true", "eval.eval_interval=3",
              "eval.eval_prompt_data={held: " + (folder_ / "prompts.jsonl") + "}"});
  const auto rollouts = read_rows(run + "/metrics.jsonl");
  const auto steps = read_rows(run + "/train_steps.jsonl");
  ASSERT_EQ(rollouts.size(), 4u) << "one before training, three rollouts";
  ASSERT_EQ(steps.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(steps[i]["step"], i + 1);
    EXPECT_EQ(steps[i]["rollout"], i / 2);
  }
  bool differ = false;
  for (size_t r = 0; r < 3; ++r) {
    for (const char* name :
         {"pg_loss", "pg_clipfrac", "pg_clipfrac/high", "entropy", "grad_norm"}) {
      const double first = number(steps[2 * r], std::string("train_step/") + name);
      const double second = number(steps[2 * r + 1], std::string("train_step/") + name);
      EXPECT_NEAR(number(rollouts[r + 1], std::string("train/") + name), (first + second) / 2,
                  1e-12)
          << name;
      differ |= first != second;
    }
    EXPECT_EQ(number(steps[2 * r], "train_step/ppo_kl"), 0) << "the weights that generated";
  }
  EXPECT_TRUE(differ);

  for (int r = 0; r < 3; ++r)
    EXPECT_EQ(
        std::filesystem::exists(run + "/samples/rollout_00000" + std::to_string(r) + ".jsonl.zst"),
        r != 1);
  const Finished shown = run_slimexx(0, {"samples", run, "--n", "2", "--rollout", "2"});
  EXPECT_EQ(shown.status, 0) << shown.text();
  for (const char* part :
       {"rollout 2  group 8  sample 1", "weights of step 4", "a coin", "2 of 16 samples"})
    EXPECT_NE(shown.out.find(part), std::string::npos) << part << "\n" << shown.out;
  // A samples file is a rollout dump: its rewards and log-probs give the same first step.
  const std::string again =
      train("again", {"debug.load_rollout=" + run + "/samples/rollout_000000.jsonl.zst",
                      "train.num_steps_per_rollout=2", "rollout.num_rollout=1"});
  expect_no_rates(again);
  EXPECT_EQ(number(read_rows(again + "/train_steps.jsonl")[0], "train_step/loss"),
            number(steps[0], "train_step/loss"));

  std::string events;
  for (const auto& entry : std::filesystem::directory_iterator(run + "/tb"))
    if (entry.is_regular_file()) events += read_bytes(entry.path().string());
  for (const char* part : {"num_steps_per_rollout: 2", "| set | prompts | samples |",
                           "**group 0 sample 0: reward ", "text"})
    EXPECT_NE(events.find(part), std::string::npos) << part;
}

TEST_F(Report, SampleWithoutAGradeIsMaskedOrStopsTheRun) {
  std::string prompts;
  for (int i = 0; i < 4; ++i)
    prompts +=
        Json{{"prompt", "question " + std::to_string(i)}, {"label", i == 2 ? "2.5" : "7"}}.dump() +
        "\n";
  const std::string path = folder_.put("half.jsonl", prompts);
  const std::vector<std::string> settings = {"reward.rm_type=dapo", "data.prompt_data=" + path,
                                             "rollout.num_rollout=1", "observe.samples_interval=1"};
  const std::string run = train("masked", settings);
  const Json row = read_rows(run + "/metrics.jsonl").at(0);
  EXPECT_EQ(number(row, "rollout/grader_failed"), 4);
  EXPECT_EQ(number(row, "rollout/raw_reward"), -1) << "of the twelve that have a grade";
  EXPECT_EQ(number(row, "reward/acc"), 0);
  EXPECT_NE(log_.find("the grader failed on 4 of 16 samples"), std::string::npos) << log_;
  EXPECT_NE(log_.find("'2.5' is not an integer"), std::string::npos) << log_;
  const Finished shown = run_slimexx(0, {"samples", run, "--failed", "--n", "9"});
  EXPECT_NE(shown.out.find("4 of 4 samples whose grader failed"), std::string::npos) << shown.out;

  std::vector<std::string> strict = settings;
  strict.push_back("reward.on_failure=stop");
  const Finished stopped = run_slimexx(0, train_arguments(folder_, folder_ / "strict", strict));
  EXPECT_EQ(stopped.status, 2) << stopped.text();  // labels are tried before any generation
  EXPECT_NE(stopped.err.find("half.jsonl:3"), std::string::npos) << stopped.err;
  EXPECT_NE(stopped.err.find("on_failure: mask"), std::string::npos) << stopped.err;
}

}  // namespace
}  // namespace slimexx::e2e
