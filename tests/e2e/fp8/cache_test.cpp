// Runs with an FP8 cache of keys and values (rollout.kv_cache_dtype): training rounds keys and
// values as the cache does, and computes the log-probs of generation to the bit.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "e2e/fp8/ways.h"

namespace slimexx::e2e {
namespace {

constexpr const char* kFp8Cache = "rollout.kv_cache_dtype=fp8_e4m3";

std::vector<Way> list_ways() {
  const std::string dense = "models/qwen3_tied_mqa", plain = "models/llama",
                    experts = "oracle/qwen3_moe", latent = "oracle/glm4_moe_lite",
                    sparse = "oracle/glm_moe_dsa", whole = "{}";
  const std::string tp2 = "parallel.tensor_model_parallel_size=2",
                    ep2 = "parallel.expert_model_parallel_size=2",
                    cp2 = "parallel.context_parallel_size=2",
                    pp2 = "parallel.pipeline_model_parallel_size=2",
                    engine2 = "rollout.rollout_num_gpus_per_engine=2";
  const Settings small_cache = {"rollout.page_size=1", "rollout.max_total_tokens=130",
                                "rollout.chunked_prefill_size=7"};
  const Settings no_prefix = {"rollout.disable_radix_cache=true"};
  const Settings apart = {"parallel.colocate=false", "parallel.actor_num_gpus=1",
                          "parallel.rollout_num_gpus=1"};
  const Settings recompute = {"train.recompute_granularity=full",
                              "numerics.recompute_old_log_probs=true"};
  const Settings drafts = {"rollout.speculative_algorithm=NEXTN",
                           "rollout.speculative_num_steps=1"};
  return {
      {"no_qk_norm", plain, whole},
      {"no_qk_norm_recompute", plain, whole, 1, recompute},
      {"dense", dense, whole},
      {"dense_preempts", dense, whole, 1, small_cache},
      {"dense_no_prefix_cache", dense, whole, 1, no_prefix},
      {"dense_drafts", dense, whole, 1, {"rollout.speculative_algorithm=NGRAM"}},
      {"dense_recompute", dense, whole, 1, recompute},
      {"dense_tp", dense, kDense, 2, {tp2, engine2}},
      {"dense_tp_copied_heads", dense, whole, 2, {tp2, engine2}},
      {"dense_engine_tp", dense, kDense, 2, {engine2}},
      {"dense_trainer_tp", dense, kDense, 2, {tp2}},
      {"dense_pp", dense, kDense, 2, {pp2}},
      {"dense_cp", dense, whole, 2, {cp2}},
      {"dense_apart", dense, whole, 2, apart},
      {"experts_ep", experts, whole, 2, {ep2}},
      {"experts_engine_ep", experts, whole, 2, {ep2, engine2, "rollout.ep_size=2"}},
      {"latent", latent, kLatent},
      {"latent_preempts", latent, kLatent, 1, small_cache},
      {"latent_drafts", latent, kLatent, 1, drafts},
      {"latent_recompute", latent, kLatent, 1, recompute},
      {"latent_tp", latent, kLatent, 2, {tp2, engine2, "parallel.expert_tensor_parallel_size=1"}},
      {"latent_trainer_tp", latent, kLatent, 2, {tp2, "parallel.expert_tensor_parallel_size=1"}},
      {"latent_cp", latent, kLatent, 2, {cp2}},
      {"sparse", sparse, whole},
      {"sparse_preempts", sparse, whole, 1, small_cache},
      {"sparse_recompute", sparse, whole, 1, recompute},
      {"sparse_tp", sparse, whole, 2, {tp2, engine2, "parallel.expert_tensor_parallel_size=1"}},
      {"sparse_cp", sparse, whole, 2, {cp2}},
  };
}

class Fp8Cache : public testing::TestWithParam<Way> {};

TEST_P(Fp8Cache, TrainsOnItsOwnBits) {
  expect_own_bits(train_two_rollouts(GetParam(), {kFp8Cache}));
}

INSTANTIATE_TEST_SUITE_P(Ways, Fp8Cache, testing::ValuesIn(list_ways()),
                         [](const auto& instance) { return instance.param.name; });

// FP8 products and an FP8 cache together.
TEST(Fp8CacheAndProducts, TrainOnTheirOwnBits) {
  for (const Way& way :
       {Way{"dense", "models/qwen3_tied_mqa", kDense}, Way{"experts", "oracle/qwen3_moe", kExperts},
        Way{"latent", "oracle/glm4_moe_lite", kLatent}}) {
    SCOPED_TRACE(way.name);
    expect_own_bits(train_two_rollouts(way, {kFp8Cache, "numerics.fp8=on"}));
  }
}

// The cache changes log-probs, holds about half the bytes, and a resume with another type is
// refused.
TEST(Fp8CacheRun, RoundsAndIsPartOfTheState) {
  for (const char* model :
       {"models/qwen3_tied_mqa", "oracle/glm4_moe_lite", "oracle/glm_moe_dsa"}) {
    SCOPED_TRACE(model);
    const Folder folder;
    make_checkpoint(folder, model);
    make_prompts(folder);
    const auto run = [&](const std::string& name, int rollouts, const std::string& dtype,
                         bool resumes) {
      Settings all = train_arguments(
          folder, folder / name,
          {"rollout.num_rollout=" + std::to_string(rollouts), "rollout.kv_cache_dtype=" + dtype,
           "debug.save_rollout=" + (folder / (name + "/made"))});
      if (resumes) all.emplace_back("--resume");
      return run_slimexx(0, all);
    };
    const auto samples = [&](const std::string& name) {
      return read_bytes(folder / (name + "/made/rollout_000000.jsonl"));
    };
    EXPECT_EQ(run("fp8", 1, "fp8_e4m3", false).status, 0);
    EXPECT_EQ(run("plain", 1, "auto", false).status, 0);
    EXPECT_NE(samples("fp8"), samples("plain"));
    for (const auto& [name, before, now] :
         {std::tuple{"fp8", "fp8_e4m3", "auto"}, {"plain", "auto", "fp8_e4m3"}}) {
      const Finished other = run(name, 2, now, true);
      EXPECT_EQ(other.status, 2) << other.text();
      EXPECT_NE(other.text().find(std::string("rollout.kv_cache_dtype \"") + before +
                                  "\", but it is now \"" + now),
                std::string::npos)
          << other.text();
    }
    const Finished resumed = run("fp8", 2, "fp8_e4m3", true);
    EXPECT_EQ(resumed.status, 0) << resumed.text();
  }
}

}  // namespace
}  // namespace slimexx::e2e
