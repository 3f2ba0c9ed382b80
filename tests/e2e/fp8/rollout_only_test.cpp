// Runs with numerics.fp8: rollout_only: engines sample as in an FP8 run, training computes as in a
// run without FP8, and the metrics count the difference.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "e2e/fp8/ways.h"

namespace slimexx::e2e {
namespace {

constexpr const char* kDenseModel = "models/qwen3_tied_mqa";
constexpr const char* kExpertModel = "oracle/qwen3_moe";
constexpr const char* kLatentModel = "oracle/glm4_moe_lite";
const Settings kApart = {"parallel.colocate=false", "parallel.actor_num_gpus=1",
                         "parallel.rollout_num_gpus=1"};
const Settings kCorrected = {"numerics.on_logprob_mismatch=ignore", "rl.use_tis=true"};

std::vector<Way> list_ways() {
  const std::string tp2 = "parallel.tensor_model_parallel_size=2",
                    ep2 = "parallel.expert_model_parallel_size=2",
                    engine2 = "rollout.rollout_num_gpus_per_engine=2";
  return {
      {"dense", kDenseModel, kDense},
      {"dense_float_scales", kDenseModel, kDense, 1, {"numerics.fp8_scale_fmt=float"}},
      {"dense_steps", kDenseModel, kDense, 1, {"train.num_steps_per_rollout=2"}},
      {"dense_drafts", kDenseModel, kDense, 1, {"rollout.speculative_algorithm=NGRAM"}},
      {"dense_tp", kDenseModel, kDense, 2, {tp2, engine2}},
      {"dense_engine_tp", kDenseModel, kDense, 2, {engine2}},
      {"dense_trainer_tp", kDenseModel, kDense, 2, {tp2}},
      {"dense_pp", kDenseModel, kDense, 2, {"parallel.pipeline_model_parallel_size=2"}},
      {"dense_apart", kDenseModel, kDense, 2, kApart},
      {"experts", kExpertModel, kExperts},
      {"experts_ep", kExpertModel, kExperts, 2, {ep2}},
      {"experts_engine_ep", kExpertModel, kExperts, 2, {ep2, engine2, "rollout.ep_size=2"}},
      {"experts_apart", kExpertModel, kExperts, 2, kApart},
      {"latent_trained_mtp",
       kLatentModel,
       kLatent,
       1,
       {"train.enable_mtp_training=true", "train.mtp_num_layers=1",
        "rollout.speculative_algorithm=NEXTN", "rollout.speculative_num_steps=1"}},
  };
}

Finished train(const Folder& folder, const std::string& name, int ranks, const Settings& settings,
               const Settings& more) {
  Settings all = settings;
  all.insert(all.end(), more.begin(), more.end());
  all = train_arguments(folder, folder / name, all);
  all.push_back("--thread-ranks=" + std::to_string(ranks));
  return run_slimexx(0, all);
}

class Fp8Rollout : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    make_checkpoint(folder_, GetParam().model, GetParam().changes);
    make_prompts(folder_);
  }
  bool is_apart() const { return GetParam().settings == kApart; }
  // One rollout with its samples in NAME/made and the weights of the first step in NAME/first. The
  // row of metrics; null if the run failed.
  Json run(const std::string& name, const std::string& fp8, const Settings& more) {
    Settings all = {"numerics.fp8=" + fp8,
                    "rollout.num_rollout=1",
                    "rl.use_kl_loss=true",
                    "rl.kl_loss_coef=0.01",
                    "model.ref_load=" + (folder_ / "model"),
                    "debug.dump_weights=" + (folder_ / (name + "/first"))};
    all.insert(all.end(), more.begin(), more.end());
    const bool trains_only = is_apart() && fp8 == "off";
    const Finished f = train(folder_, name, trains_only ? 1 : GetParam().ranks, all,
                             trains_only ? Settings() : GetParam().settings);
    EXPECT_EQ(f.status, 0) << f.text();
    return f.status == 0 ? read_rows(folder_ / (name + "/metrics.jsonl")).at(0) : Json();
  }
  Settings saves(const std::string& name) const {
    return {"debug.save_rollout=" + (folder_ / (name + "/made")), "debug.check_weight_hash=true"};
  }
  std::string samples(const std::string& name) const {
    return folder_ / (name + "/made/rollout_000000.jsonl");
  }
  Folder folder_;
};

TEST_P(Fp8Rollout, EngineSamplesAsInFp8AndTrainingComputesWithoutIt) {
  Settings corrected = saves("rollout_only");
  corrected.insert(corrected.end(), kCorrected.begin(), kCorrected.end());
  const Json row = run("rollout_only", "rollout_only", corrected);
  ASSERT_FALSE(row.is_null());
  EXPECT_GT(number(row, "train/mismatch_tokens"), 0);
  EXPECT_GT(number(row, "train/train_rollout_logprob_abs_diff"), 0);
  EXPECT_GT(number(row, "train/tis_abs"), 0);
  EXPECT_GT(number(row, "train/fp8_changed"), 0);
  EXPECT_GT(number(row, "rollout/num_tokens"), 16);

  ASSERT_FALSE(run("on", "on", saves("on")).is_null());
  EXPECT_EQ(read_bytes(samples("rollout_only")), read_bytes(samples("on")));
  Settings loads = {"debug.load_rollout=" + samples("rollout_only"), "rl.use_tis=true"};
  const Json plain = run("off", "off", loads);
  ASSERT_FALSE(plain.is_null());
  for (const char* metric : {"train/loss", "train/kl_loss", "train/tis", "train/grad_norm"})
    EXPECT_EQ(number(row, metric), number(plain, metric)) << metric;
  EXPECT_EQ(read_bytes(folder_ / "rollout_only/first/weights.safetensors"),
            read_bytes(folder_ / "off/first/weights.safetensors"));
}

INSTANTIATE_TEST_SUITE_P(Ways, Fp8Rollout, testing::ValuesIn(list_ways()),
                         [](const auto& instance) { return instance.param.name; });

// With a KL in the reward, and with a reference that follows the policy, both log-probs are
// training's: they are equal while the weights are.
TEST(Fp8RolloutOnly, TheReferenceComputesAsTraining) {
  const Folder folder;
  make_checkpoint(folder, kDenseModel, kDense);
  make_prompts(folder);
  Settings all = {"numerics.fp8=rollout_only", "rollout.num_rollout=2",
                  "model.ref_load=" + (folder / "model"), "rl.ref_update_interval=1"};
  all.insert(all.end(), kCorrected.begin(), kCorrected.end());
  for (const Settings& kl : {Settings{"rl.kl_coef=0.1", "rl.advantage_estimator=rloo"},
                             Settings{"rl.use_kl_loss=true", "rl.kl_loss_coef=0.01"}}) {
    const Finished f = train(folder, kl[0], 1, all, kl);
    ASSERT_EQ(f.status, 0) << f.text();
    for (const Json& row : read_rows(folder / (kl[0] + "/metrics.jsonl")))
      EXPECT_TRUE(number(row, "train/ref_kl") == 0 && number(row, "train/mismatch_tokens") > 0)
          << row.dump();
  }
}

TEST(Fp8RolloutOnly, SaysWhatItGivesUpAndResumes) {
  const Folder folder;
  make_checkpoint(folder, kDenseModel, kDense);
  make_prompts(folder);
  const auto run = [&](const std::string& name, const std::string& fp8, int rollouts,
                       bool resumes = false) {
    Settings all = {"numerics.fp8=" + fp8, "rollout.num_rollout=" + std::to_string(rollouts),
                    "checkpoint.save_hf=" + (folder / (name + "/hf"))};
    all.insert(all.end(), kCorrected.begin(), kCorrected.end());
    all = train_arguments(folder, folder / name, all);
    if (resumes) all.emplace_back("--resume");
    return run_slimexx(0, all);
  };
  const Finished whole = run("whole", "rollout_only", 3);
  EXPECT_EQ(whole.status, 0) << whole.text();
  EXPECT_NE(whole.text().find("FP8: in engines only"), std::string::npos) << whole.text();
  EXPECT_NE(whole.text().find("gives up exactness"), std::string::npos) << whole.text();
  EXPECT_EQ(run("parts", "rollout_only", 1).status, 0);
  for (const std::string other : {"on", "off"}) {
    const Finished refused = run("parts", other, 3, true);
    EXPECT_EQ(refused.status, 2) << refused.text();
    EXPECT_NE(refused.text().find("numerics.fp8 \"rollout_only\", but it is now \"" + other),
              std::string::npos)
        << refused.text();
  }
  const Finished resumed = run("parts", "rollout_only", 3, true);
  ASSERT_EQ(resumed.status, 0) << resumed.text();
  EXPECT_EQ(read_bytes(folder / "parts/hf/model.safetensors"),
            read_bytes(folder / "whole/hf/model.safetensors"));
}

// An evaluation only generates, so it computes as with numerics.fp8: on.
TEST(Fp8RolloutOnly, EvaluationIsInFp8) {
  const Folder folder;
  make_checkpoint(folder, kDenseModel, kDense);
  make_prompts(folder);
  const auto evaluate = [&](const std::string& fp8) {
    Settings all = train_arguments(
        folder, folder / fp8,
        {"numerics.fp8=" + fp8, "eval.eval_prompt_data={set: " + (folder / "prompts.jsonl") + "}"});
    all[0] = "eval";
    const Finished f = run_slimexx(0, all);
    EXPECT_EQ(f.status, 0) << f.text();
    return read_bytes(folder / (fp8 + "/samples/eval_set_000000.jsonl"));
  };
  const std::string expected = evaluate("on");
  EXPECT_EQ(evaluate("rollout_only"), expected);
  EXPECT_NE(evaluate("off"), expected);
}

TEST(Fp8RolloutOnly, RefusesRunsThatDoNotCorrect) {
  const Folder folder;
  make_checkpoint(folder, kDenseModel, kDense);
  make_prompts(folder);
  expect_refused(
      folder, 1, {"numerics.fp8=rollout_only"},
      {"2 faults",
       "numerics.fp8: is rollout_only, and numerics.on_logprob_mismatch is "
       "fail",
       "numerics.fp8: is rollout_only, and rl.use_tis is false", "set rl.use_tis to true"});
  Settings small = {"numerics.fp8=rollout_only", "model.hf_checkpoint=" + (folder / "small")};
  make_checkpoint(folder, "models/llama", "{}", "small");
  small.insert(small.end(), kCorrected.begin(), kCorrected.end());
  expect_refused(folder, 1, small, {"no matrix of", "numerics.fp8"});
}

}  // namespace
}  // namespace slimexx::e2e
