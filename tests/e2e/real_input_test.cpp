// Tests configs/smoke/real-input.yaml, which has a real tokenizer with its full vocabulary, a real
// chat template and a real data set.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "e2e/small_run.h"
#include "e2e/tensor_files.h"
#include "test_paths.h"

namespace slimexx::e2e {
namespace {

const std::string kSource = test_data_path("..");
const std::string kGolden = test_data_path("golden");

class RealInput : public testing::Test {
 protected:
  void SetUp() override {
    const Finished f =
        run_slimexx(0, {"init", "--model-config", kSource + "/configs/smoke/glm4.config.json",
                        "--tokenizer", real_tokenizer_path("glm-4.5"), "--chat-template",
                        kGolden + "/chat_templates/trl-glm4moe.jinja", "--save", folder_ / "model",
                        "--eos-token", "<|endoftext|>", "<|user|>", "<|observation|>"});
    ASSERT_EQ(f.status, 0) << f.text();
  }

  // Runs the smoke configuration with other paths; `name` is the run's folder.
  Finished train(int num_ranks, const std::string& name, std::vector<std::string> settings,
                 const std::vector<std::string>& flags = {}) const {
    std::vector<std::string> arguments = {
        "train",
        "--config",
        kSource + "/configs/smoke/real-input.yaml",
        "--set",
        "model.hf_checkpoint=" + (folder_ / "model"),
        "model.ref_load=" + (folder_ / "model"),
        "data.prompt_data=" + kGolden + "/math/dapo-math-256.jsonl",
        "eval.eval_prompt_data.aime=" + kGolden + "/math/aime-2024.jsonl",
        "observe.run_dir=" + (folder_ / name),
        "checkpoint.save_hf=" + (folder_ / (name + "/hf")),
        "debug.save_rollout=" + (folder_ / (name + "/rollouts"))};
    arguments.insert(arguments.end(), settings.begin(), settings.end());
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return run_slimexx(num_ranks, arguments);
  }

  void expect_metrics(const std::string& name) const {
    const auto rows = read_rows(folder_ / (name + "/metrics.jsonl"));
    ASSERT_EQ(rows.size(), 3u);  // the evaluation before training, and two rollouts
    for (const size_t i : {1u, 2u}) {
      for (const char* key :
           {"train/loss", "train/pg_loss", "train/kl_loss", "train/entropy", "train/grad_norm",
            "rollout/raw_reward", "rollout/response_len/mean", "rollout/truncated_ratio",
            "perf/step_time", "perf/tokens_per_gpu_per_sec", "train/lr"}) {
        EXPECT_TRUE(rows[i].contains(key)) << key;
      }
      EXPECT_EQ(number(rows[i], "train/train_rollout_logprob_abs_diff"), 0);
      EXPECT_EQ(number(rows[i], "train/train_rollout_logprob_max_diff"), 0);
      EXPECT_GT(number(rows[i], "rollout/num_tokens"), 16);
      EXPECT_GT(number(rows[i], "train/grad_norm"), 0);  // the entropy bonus alone changes weights
    }
    for (const size_t i : {0u, 2u}) {
      EXPECT_TRUE(rows[i].contains("eval/aime/pass@1"));
      EXPECT_EQ(number(rows[i], "eval/aime/response_len/max"), 8);
    }
    EXPECT_EQ(read_rows(folder_ / (name + "/samples/eval_aime_000002.jsonl")).size(), 30u);
  }

  // Samples have prompts rendered by the template, and grades.
  void expect_samples(const std::string& dump) const {
    const auto samples = read_rows(dump);
    ASSERT_EQ(samples.size(), 16u);
    for (const Json& s : samples) {
      const std::string prompt = s.at("prompt");
      EXPECT_TRUE(prompt.starts_with("[gMASK]<sop>")) << prompt;
      EXPECT_NE(prompt.find("<|user|>"), std::string::npos);
      EXPECT_NE(prompt.find("<|assistant|>"), std::string::npos);
      EXPECT_FALSE(s.at("label").get<std::string>().empty());
      EXPECT_FALSE(s.at("reason").get<std::string>().empty());
      EXPECT_EQ(s.at("tokens").at(0), 151331);  // [gMASK]
    }
  }

  const Folder folder_;
};

TEST_F(RealInput, TrainsEvaluatesSavesResumesAndExports) {
  Finished f = train(0, "whole", {"numerics.recompute_old_log_probs=true"});
  ASSERT_EQ(f.status, 0) << f.text();
  expect_metrics("whole");
  expect_samples(folder_ / "whole/rollouts/rollout_000001.jsonl");

  // Resuming from the first step's checkpoint gives the same bytes.
  f = train(0, "resumed", {}, {"--resume", folder_ / "whole/checkpoints/step_000001"});
  ASSERT_EQ(f.status, 0) << f.text();
  for (const std::string file : {"hf/model.safetensors", "checkpoints/step_000002/manifest.json"}) {
    EXPECT_TRUE(read_bytes(folder_ / ("whole/" + file)) ==
                read_bytes(folder_ / ("resumed/" + file)))
        << file;
  }

  f = run_slimexx(
      0, {"score", "--hf-checkpoint", folder_ / "whole/hf", "--input",
          folder_ / "whole/rollouts/rollout_000001.jsonl", "--output", folder_ / "scores.jsonl"});
  ASSERT_EQ(f.status, 0) << f.text();
  EXPECT_EQ(read_rows(folder_ / "scores.jsonl").size(), 16u);
}

// After an update with lr 0, scoring the export gives bit-identical log-probs to generation.
TEST_F(RealInput, ScoreOfTheStartIsWhatWasGenerated) {
  const Finished made =
      train(0, "run",
            {"rollout.num_rollout=1", "eval.eval_interval=0", "checkpoint.save_interval=0",
             "optimizer.lr=0", "optimizer.weight_decay=0"});
  ASSERT_EQ(made.status, 0) << made.text();
  const std::string dump = folder_ / "run/rollouts/rollout_000000.jsonl";
  const Finished f = run_slimexx(0, {"score", "--hf-checkpoint", folder_ / "run/hf", "--input",
                                     dump, "--output", folder_ / "scores.jsonl"});
  ASSERT_EQ(f.status, 0) << f.text();
  const auto samples = read_rows(dump), scores = read_rows(folder_ / "scores.jsonl");
  ASSERT_EQ(samples.size(), scores.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    const auto generated = samples[i].at("rollout_log_probs").get<std::vector<float>>();
    const auto all = scores[i].at("logprobs").get<std::vector<float>>();
    ASSERT_GE(all.size(), generated.size());
    const std::vector<float> own(all.end() - std::ssize(generated), all.end());
    EXPECT_EQ(own, generated) << "sample " << i;
  }
}

TEST_F(RealInput, TwoRanksGenerateTheSameBytes) {
  if (const std::string reason = why_no_ranks(); !reason.empty()) GTEST_SKIP() << reason;
  for (const int num_ranks : {0, 2}) {
    const Finished f = train(num_ranks, "ranks_" + std::to_string(num_ranks),
                             {"rollout.num_rollout=1", "eval.eval_interval=0",
                              "checkpoint.save_interval=0", "checkpoint.save_hf=null"});
    ASSERT_EQ(f.status, 0) << f.text();
  }
  const std::string dump = "/rollouts/rollout_000000.jsonl";
  EXPECT_GT(read_bytes(folder_ / ("ranks_0" + dump)).size(), 1000u);
  EXPECT_EQ(read_bytes(folder_ / ("ranks_0" + dump)), read_bytes(folder_ / ("ranks_2" + dump)));
}

}  // namespace
}  // namespace slimexx::e2e
