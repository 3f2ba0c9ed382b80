// Runs that compute in FP8 (numerics.fp8): training computes the log-probs of generation to the bit
// on every grid, the reference's KL starts at 0, and a resumed run ends with the same bytes.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "e2e/fp8/ways.h"

namespace slimexx::e2e {
namespace {

std::vector<Way> list_ways() {
  const std::string dense = "models/qwen3_tied_mqa", experts = "oracle/qwen3_moe",
                    latent = "oracle/glm4_moe_lite";
  const std::string tp2 = "parallel.tensor_model_parallel_size=2",
                    ep2 = "parallel.expert_model_parallel_size=2",
                    engine2 = "rollout.rollout_num_gpus_per_engine=2";
  const Settings small_cache = {"rollout.page_size=1", "rollout.max_total_tokens=130",
                                "rollout.chunked_prefill_size=7"};
  const Settings apart = {"parallel.colocate=false", "parallel.actor_num_gpus=1",
                          "parallel.rollout_num_gpus=1"};
  return {
      {"dense", dense, kDense},
      {"dense_preempts", dense, kDense, 1, small_cache},
      {"dense_float_scales", dense, kDense, 1, {"numerics.fp8_scale_fmt=float"}},
      {"dense_drafts", dense, kDense, 1, {"rollout.speculative_algorithm=NGRAM"}},
      {"dense_tp", dense, kDense, 2, {tp2, engine2}},
      {"dense_engine_tp", dense, kDense, 2, {engine2}},
      {"dense_trainer_tp", dense, kDense, 2, {tp2}},
      {"dense_pp", dense, kDense, 2, {"parallel.pipeline_model_parallel_size=2"}},
      {"dense_cp", dense, kDense, 2, {"parallel.context_parallel_size=2"}},
      {"dense_apart", dense, kDense, 2, apart},
      {"dense_host_optimizer", dense, kDense, 1, {"optimizer.optimizer_cpu_offload=true"}},
      {"dense_frozen", dense, kDense, 1, {"train.freeze_params_name_list=[o_proj, down_proj]"}},
      {"dense_recompute",
       dense,
       kDense,
       1,
       {"train.recompute_granularity=full", "numerics.recompute_old_log_probs=true"}},
      {"experts", experts, kExperts},
      {"experts_redundant",
       experts,
       kExperts,
       2,
       {ep2, engine2, "rollout.ep_size=2", "rollout.ep_num_redundant_experts=2"}},
      {"experts_ep", experts, kExperts, 2, {ep2}},
      {"experts_engine_ep", experts, kExperts, 2, {ep2, engine2, "rollout.ep_size=2"}},
      {"latent", latent, kLatent},
      {"latent_preempts", latent, kLatent, 1, small_cache},
      {"latent_drafts",
       latent,
       kLatent,
       1,
       {"rollout.speculative_algorithm=NEXTN", "rollout.speculative_num_steps=1"}},
      {"latent_trained_mtp",
       latent,
       kLatent,
       1,
       {"train.enable_mtp_training=true", "train.mtp_num_layers=1",
        "rollout.speculative_algorithm=NEXTN", "rollout.speculative_num_steps=1"}},
      {"latent_tp", latent, kLatent, 2, {tp2, engine2, "parallel.expert_tensor_parallel_size=1"}},
      {"latent_apart", latent, kLatent, 2, apart},
  };
}

class Fp8Run : public testing::TestWithParam<Way> {};

TEST_P(Fp8Run, TrainsOnItsOwnBits) {
  const auto rows = train_two_rollouts(GetParam(), {"numerics.fp8=on"});
  expect_own_bits(rows);
  for (const Json& row : rows) EXPECT_GT(number(row, "train/fp8_changed"), 0);
}

INSTANTIATE_TEST_SUITE_P(Ways, Fp8Run, testing::ValuesIn(list_ways()),
                         [](const auto& instance) { return instance.param.name; });

// The samples and log-probs do not depend on the grid, and differ from those of a plain run.
TEST(Fp8, GridsGenerateTheSameBits) {
  const Folder folder;
  make_checkpoint(folder, "models/qwen3_tied_mqa", kDense);
  make_prompts(folder);
  const auto run = [&](const std::string& name, const char* fp8, const Settings& settings) {
    Settings all = {std::string("numerics.fp8=") + fp8, "rollout.num_rollout=1",
                    "debug.save_rollout=" + (folder / (name + "/made"))};
    all.insert(all.end(), settings.begin(), settings.end());
    all = train_arguments(folder, folder / name, all);
    all.push_back("--thread-ranks=2");
    const Finished f = run_slimexx(0, all);
    EXPECT_EQ(f.status, 0) << f.text();
    return read_bytes(folder / (name + "/made/rollout_000000.jsonl"));
  };
  const Settings engines = {"rollout.rollout_num_gpus_per_engine=2"};
  Settings both = engines;
  both.emplace_back("parallel.tensor_model_parallel_size=2");
  const std::string expected = run("engines", "on", engines);
  EXPECT_EQ(run("both", "on", both), expected);
  EXPECT_NE(run("plain", "off", engines), expected);
}

// A reference that is replaced by the policy gets the policy's FP8 bytes.
TEST(Fp8, AMovedReferenceEqualsThePolicy) {
  const Folder folder;
  make_checkpoint(folder, "models/qwen3_tied_mqa", kDense);
  make_prompts(folder);
  for (const char* format : {"ue8m0", "float"}) {
    const Finished f = run_slimexx(
        0, train_arguments(folder, folder / format,
                           {"numerics.fp8=on", std::string("numerics.fp8_scale_fmt=") + format,
                            "rl.use_kl_loss=true", "rl.kl_loss_coef=0.01",
                            "rl.ref_update_interval=1", "model.ref_load=" + (folder / "model")}));
    ASSERT_EQ(f.status, 0) << f.text();
    for (const Json& row : read_rows(folder / (std::string(format) + "/metrics.jsonl")))
      EXPECT_EQ(number(row, "train/ref_kl"), 0) << format << row.dump();
  }
}

TEST(Fp8, FrozenWeightsResume) {
  const Folder folder;
  make_checkpoint(folder, "models/qwen3_tied_mqa", kDense);
  make_prompts(folder);
  const auto run = [&](int rollouts, bool resumes) {
    Settings all =
        train_arguments(folder, folder / "run",
                        {"numerics.fp8=on", "rollout.num_rollout=" + std::to_string(rollouts),
                         "train.freeze_params_name_list=[o_proj]"});
    if (resumes) all.emplace_back("--resume");
    return run_slimexx(0, all);
  };
  EXPECT_EQ(run(1, false).status, 0);
  const Finished f = run(2, true);
  EXPECT_EQ(f.status, 0) << f.text();
}

TEST(Fp8, ResumedEqualsUninterrupted) {
  const Folder folder;
  make_checkpoint(folder, "models/qwen3_tied_mqa", kDense);
  make_prompts(folder);
  const auto run = [&](const std::string& name, int rollouts, bool resumes,
                       const Settings& settings = {}) {
    Settings all = {"numerics.fp8=on", "rollout.num_rollout=" + std::to_string(rollouts),
                    "checkpoint.save_hf=" + (folder / (name + "/hf"))};
    all.insert(all.end(), settings.begin(), settings.end());
    all = train_arguments(folder, folder / name, all);
    if (resumes) all.emplace_back("--resume");
    return run_slimexx(0, all);
  };
  EXPECT_EQ(run("whole", 3, false).status, 0);
  EXPECT_EQ(run("parts", 1, false).status, 0);
  const Finished off = run("parts", 3, true, {"numerics.fp8=off"});
  EXPECT_EQ(off.status, 2) << off.text();
  EXPECT_NE(off.text().find("numerics.fp8 \"on\", but it is now \"off\""), std::string::npos)
      << off.text();
  const Finished other = run("parts", 3, true, {"numerics.fp8_scale_fmt=float"});
  EXPECT_EQ(other.status, 2) << other.text();
  EXPECT_NE(other.text().find("numerics.fp8_scale_fmt \"ue8m0\""), std::string::npos)
      << other.text();
  const Finished resumed = run("parts", 3, true);
  ASSERT_EQ(resumed.status, 0) << resumed.text();
  EXPECT_EQ(read_bytes(folder / "parts/hf/model.safetensors"),
            read_bytes(folder / "whole/hf/model.safetensors"));
}

// A folder converted by `convert-hf --to fp8` has the values that a run computes from the bf16
// folder.
TEST(Fp8, AFolderInFp8ComputesTheSame) {
  const Folder folder;
  Json changes = parse_json(kDense, "changes");
  changes["dtype"] = "bfloat16";
  make_checkpoint(folder, "models/qwen3_tied_mqa", changes.dump());
  make_prompts(folder);
  const Finished converted = run_slimexx(0, {"convert-hf", "--hf-checkpoint", folder / "model",
                                             "--to", "fp8", "--save", folder / "fp8"});
  ASSERT_EQ(converted.status, 0) << converted.text();
  const auto run = [&](const std::string& name, const std::string& model, const char* fp8) {
    Settings all = train_arguments(
        folder, folder / name,
        {std::string("numerics.fp8=") + fp8, "rollout.num_rollout=1",
         "model.hf_checkpoint=" + model, "debug.save_rollout=" + (folder / (name + "/made"))});
    const Finished f = run_slimexx(0, all);
    EXPECT_EQ(f.status, 0) << f.text();
    return read_bytes(folder / (name + "/made/rollout_000000.jsonl"));
  };
  const std::string expected = run("plain_folder", folder / "model", "on");
  EXPECT_EQ(run("fp8_folder", folder / "fp8", "auto"), expected);
  EXPECT_NE(run("fp8_off", folder / "fp8", "off"), expected);
}

TEST(Fp8, AnFp8FolderOfOtherSizesIsDequantised) {
  const Folder folder;
  make_checkpoint(folder, "models/llama");
  make_prompts(folder);
  const Finished converted = run_slimexx(0, {"convert-hf", "--hf-checkpoint", folder / "model",
                                             "--to", "fp8", "--save", folder / "fp8"});
  ASSERT_EQ(converted.status, 0) << converted.text();
  const Finished f = run_slimexx(
      0, train_arguments(folder, folder / "run",
                         {"rollout.num_rollout=1", "model.hf_checkpoint=" + (folder / "fp8")}));
  ASSERT_EQ(f.status, 0) << f.text();
  EXPECT_NE(f.text().find("dequantised on load"), std::string::npos) << f.text();
  EXPECT_FALSE(read_rows(folder / "run/metrics.jsonl").at(0).contains("train/fp8_changed"));
}

TEST(Fp8, RefusesWhatItCannotCompute) {
  const Folder folder;
  make_checkpoint(folder, "models/llama");
  make_prompts(folder);
  expect_refused(folder, 1, {"numerics.fp8=on"}, {"no matrix of", "numerics.fp8", "hidden_size"});
  make_checkpoint(folder, "models/qwen3_tied_mqa", kDense, "wide");
  const Finished converted =
      run_slimexx(0, {"convert-hf", "--hf-checkpoint", folder / "wide", "--to", "fp8", "--strategy",
                      "channel", "--save", folder / "channel"});
  ASSERT_EQ(converted.status, 0) << converted.text();
  expect_refused(folder, 1, {"numerics.fp8=on", "model.hf_checkpoint=" + (folder / "channel")},
                 {"one scale per row", "--strategy block"});
}

}  // namespace
}  // namespace slimexx::e2e
