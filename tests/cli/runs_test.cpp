// The command lines of train and eval; tests/rl and tests/e2e test their results.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "run_binary.h"

namespace slimexx::cli {
namespace {

constexpr const char* kModel =
    R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 16,
"intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
"head_dim": 8, "vocab_size": 260, "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
"rope_theta": 10000.0, "tie_word_embeddings": false, "torch_dtype": "float32",
"hidden_act": "silu"})";

class Runs : public testing::Test {
 protected:
  void SetUp() override {
    const Finished f = run_slimexx({"init", "--model-config", folder_.put("c.json", kModel),
                                    "--tokenizer", "byte-level", "--save", folder_ / "model"});
    ASSERT_EQ(f.status, 0) << f.err;
    std::string rows;
    for (int i = 0; i < 8; ++i) {
      rows += Json{{"prompt", std::to_string(i) + "+1="}, {"label", std::to_string(i + 1)}}.dump();
      rows += "\n";
    }
    folder_.put("prompts.jsonl", rows);
    folder_.put("run.yaml", "model: {hf_checkpoint: " + folder_ / "model" +
                                "}\ndata: {prompt_data: " + folder_ / "prompts.jsonl" +
                                "}\nrollout: {num_rollout: 2, rollout_batch_size: 4, "
                                "n_samples_per_prompt: 2, rollout_max_response_len: 6}\n"
                                "reward: {rm_type: random}\noptimizer: {lr: 1e-3}\n"
                                "checkpoint: {save_interval: 1}\nobserve: {run_dir: " +
                                folder_ / "run" + "}\n");
  }
  Finished train(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"train", "--config", folder_ / "run.yaml"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_slimexx(arguments);
  }
  Folder folder_;
};

TEST_F(Runs, TrainResumesFromTheNewestCheckpoint) {
  Finished f = train({"--dry-run"});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/metrics.jsonl"));
  f = train({});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(parse_lines(read_bytes(folder_ / "run/metrics.jsonl")).size(), 2u);
  f = train({"--resume", "--set", "rollout.num_rollout=3"});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(parse_lines(read_bytes(folder_ / "run/metrics.jsonl")).size(), 3u);
  // The resume command in the banner has --resume only once, and not --dry-run.
  EXPECT_EQ(f.err.find("--resume", f.err.find("--resume") + 1), std::string::npos) << f.err;

  f = run_slimexx({"convert-hf", "--to", "hf", "--load", folder_ / "run/checkpoints", "--save",
                   folder_ / "trained", "--verify"});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_NE(read_bytes(folder_ / "trained/model.safetensors"),
            read_bytes(folder_ / "model/model.safetensors"));
  EXPECT_EQ(run_slimexx({"eval", "--hf-checkpoint", folder_ / "trained", "--data",
                         folder_ / "prompts.jsonl", "--set", "reward.rm_type=math",
                         "eval.eval_max_response_len=4"})
                .status,
            0);
}

TEST_F(Runs, TrainNeedsNoFileAndADryRunSaysWhatItChecked) {
  const Finished f = run_slimexx(
      {"train", "--dry-run", "--set", "model.hf_checkpoint=" + folder_ / "model",
       "data.prompt_data=" + folder_ / "prompts.jsonl", "rollout.num_rollout=1",
       "rollout.rollout_batch_size=4", "rollout.n_samples_per_prompt=2",
       "rollout.rollout_max_response_len=6", "reward.rm_type=random", "rollout.rollout_top_p=0.9",
       "train.recompute_method=uniform", "observe.run_dir=" + folder_ / "bare"});
  ASSERT_EQ(f.status, 0) << f.err;
  for (const char* part :
       {"rollout_batch_size 4 * n_samples_per_prompt 2 = global_batch_size 8 * "
        "num_steps_per_rollout 1",
        "train.recompute_method has no effect: ",
        "rollout_top_p 0.9: samples come from a truncated", "8 rendered and tokenized",
        "the first prompt, ", "random; no response was graded"})
    EXPECT_NE(f.err.find(part), std::string::npos) << part << "\n" << f.err;
}

TEST_F(Runs, EvalPrintsOneRowASet) {
  const Finished f = run_slimexx({"eval", "--hf-checkpoint", folder_ / "model", "--data",
                                  folder_ / "prompts.jsonl", "again=" + folder_ / "prompts.jsonl",
                                  "--set", "reward.rm_type=random", "eval.eval_max_response_len=4",
                                  "eval.n_samples_per_eval_prompt=2"});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_NE(f.out.find("\nprompts "), std::string::npos) << f.out;
  EXPECT_NE(f.out.find("\nagain "), std::string::npos) << f.out;
}

}  // namespace
}  // namespace slimexx::cli
