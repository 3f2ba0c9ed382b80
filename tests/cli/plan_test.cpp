// `slimexx plan`: plans of the recipes, and refusals.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "plan_recipe.h"
#include "test_paths.h"

namespace slimexx::cli {
namespace {

double bytes_of(const Json& stage, const char* name) {
  return stage.at("memory").at(name).get<double>();
}

TEST(Plan, ARecipeOfOneHostFits) {
  const Finished f = plan("glm-z1-9b-colocated", "GLM-Z1-9B-0414", {"--gpus", "4"});
  ASSERT_EQ(f.status, 0) << f.text();
  for (const char* part :
       {"9.40 B parameters", "4 ranks = tp 1 x cp 1 x dp 4 x pp 1", "optimizer state",
        "gradients, reduce-scatter", "generation", "(estimate)", "OK         it fits"})
    EXPECT_NE(f.out.find(part), std::string::npos) << part << "\n" << f.out;
}

TEST(Plan, ARecipeNeedsNoDownload) {
  const std::string config = test_data_path("../configs/glm-z1-9b-colocated.yaml");
  const Finished f = run_slimexx({"plan", "--config", config, "--gpus", "4"});
  ASSERT_EQ(f.status, 0) << f.text();
  EXPECT_NE(f.out.find("models/GLM-Z1-9B-0414 does not exist: planned from"), std::string::npos)
      << f.out;
  const Finished slash = run_slimexx({"plan", "--config", config, "--gpus", "4", "--set",
                                      "model.hf_checkpoint=models/GLM-Z1-9B-0414/"});
  EXPECT_EQ(slash.status, 0) << slash.text();
  const Finished qwen =
      run_slimexx({"plan", "--config", test_data_path("../configs/qwen3-4b.yaml"), "--json"});
  ASSERT_EQ(qwen.status, 0) << qwen.text();
  EXPECT_EQ(Json::parse(qwen.out).at("parameters"), 4022468096);
  const Finished missing = run_slimexx(
      {"plan", "--config", config, "--gpus", "4", "--set", "model.hf_checkpoint=models/none"});
  EXPECT_EQ(missing.status, 2);
  EXPECT_NE(missing.err.find("models/none"), std::string::npos) << missing.err;
}

// Counted by hand from the model's sizes: 9,400,279,040 parameters with bf16 weights, f32 gradients
// and 12 bytes of optimizer state, which is sharded over four ranks.
TEST(Plan, MemoryIsThatOfTheParameters) {
  const Finished f = plan("glm-z1-9b-colocated", "GLM-Z1-9B-0414", {"--gpus", "4", "--json"});
  ASSERT_EQ(f.status, 0) << f.text();
  const Json json = Json::parse(f.out);
  const double n = json.at("parameters").get<double>();
  EXPECT_EQ(n, 9400279040);
  const Json& stage = json.at("stages").at(0);
  EXPECT_NEAR(bytes_of(stage, "weights"), 2 * n, 1e-5 * n);
  EXPECT_NEAR(bytes_of(stage, "gradients"), 4 * n, 1e-5 * n);
  EXPECT_NEAR(bytes_of(stage, "optimizer state"), 3 * n, 1e-5 * n);
}

// TP 2 halves the weights on trainers and engines, and CP 2 shards the optimizer state further.
TEST(Plan, RanksApartHoldTheirOwnAlone) {
  const Finished f = plan("glm-z1-9b", "GLM-Z1-9B-0414", {"--json"});
  ASSERT_EQ(f.status, 0) << f.text();
  const Json json = Json::parse(f.out);
  EXPECT_EQ(json.at("ranks"), 8);
  EXPECT_EQ(json.at("trainers"), 4);
  const double n = json.at("parameters").get<double>();
  const Json &stage = json.at("stages").at(0), &generator = json.at("generator");
  EXPECT_EQ(generator.at("first_rank"), 4);
  EXPECT_NEAR(bytes_of(stage, "weights"), n, 1e-3 * n);
  EXPECT_NEAR(bytes_of(stage, "optimizer state"), 3 * n, 1e-3 * n);
  EXPECT_NEAR(bytes_of(generator, "weights"), n, 1e-3 * n);
  for (const char* name : {"gradients", "optimizer state", "activations"})
    EXPECT_FALSE(generator.at("memory").contains(name)) << name;
  for (const char* name : {"KV cache", "rollout step"}) {
    EXPECT_FALSE(stage.at("memory").contains(name)) << name;
    EXPECT_TRUE(generator.at("memory").contains(name)) << name;
  }
  EXPECT_EQ(json.at("handed_over"), generator.at("engine_weights"));
}

TEST(Plan, AnEngineThatDoesNotFitIsNamed) {
  const Finished f = plan("glm-z1-9b", "GLM-Z1-9B-0414");
  ASSERT_EQ(f.status, 0) << f.text();
  EXPECT_NE(f.out.find("ranks 0 to 3 train, ranks 4 to 7 generate"), std::string::npos) << f.out;
  const std::string folder = test_data_path("../configs/models/GLM-Z1-9B-0414");
  const Finished small = run_slimexx(
      {"plan", "--config", test_data_path("../configs/glm-z1-9b.yaml"), "--set",
       "model.hf_checkpoint=" + folder, "model.ref_load=" + folder, "rollout.kv_cache_gib=200"});
  EXPECT_EQ(small.status, 2);
  EXPECT_NE(small.out.find("NO         a generating rank does not fit by"), std::string::npos)
      << small.out;
  EXPECT_NE(small.out.find("change: leave out rollout.kv_cache_gib"), std::string::npos)
      << small.out;
}

TEST(Plan, RecipesOfManyHosts) {
  struct Case {
    const char *recipe, *model, *gpu;
    double ranks, stages;
    bool fits;
  };
  for (const Case& c : {Case{"glm4.5-355b", "GLM-4.5", "h200", 64, 4, true},
                        {"glm4.5-355b", "GLM-4.5", "h100", 64, 4, false},
                        {"glm4.7-flash-30b-16gpus", "GLM-4.7-Flash", "h200", 16, 2, true},
                        {"glm5.2-744b", "GLM-5.2", "h200", 256, 8, true}}) {
    const std::string name = std::string(c.recipe) + " on " + c.gpu;
    const Finished f = plan(c.recipe, c.model, {"--json", "--gpu", c.gpu});
    ASSERT_EQ(f.status, c.fits ? 0 : 2) << name << " " << f.text();
    const Json json = Json::parse(f.out);
    EXPECT_EQ(json.at("ranks"), c.ranks) << name;
    EXPECT_EQ(json.at("stages").size(), c.stages) << name;
    EXPECT_EQ(json.at("fits"), c.fits) << name;
    if (c.fits) continue;
    EXPECT_NE(f.err.find("the run does not fit"), std::string::npos) << f.err;
    EXPECT_FALSE(json.at("stages").at(0).at("turn").get<std::string>().empty()) << name;
  }
}

// With 64 experts on engines of 6 ranks, the first four ranks hold 11 and the others 10. The second
// stage consists of ranks 4 to 7. Rank 4 holds 10, but rank 6, the first of the next engine, holds
// 11.
TEST(Plan, AStageIsItsFullestRank) {
  const Finished f = plan(
      "glm4.7-flash-30b-16gpus", "GLM-4.7-Flash",
      {"--json", "--set", "parallel.actor_num_gpus=12", "parallel.tensor_model_parallel_size=1",
       "parallel.context_parallel_size=1", "parallel.pipeline_model_parallel_size=3",
       "parallel.decoder_last_pipeline_num_layers=15", "parallel.expert_model_parallel_size=4",
       "rollout.rollout_num_gpus_per_engine=6", "rollout.dp_size=6",
       "rollout.enable_dp_attention=true", "rollout.ep_size=6",
       "rollout.ep_num_redundant_experts=0"});
  ASSERT_FALSE(f.out.empty()) << f.text();
  const Json stages = Json::parse(f.out).at("stages");
  ASSERT_EQ(stages.size(), 3) << f.text();
  EXPECT_EQ(stages.at(1).at("first_rank"), 4);
  EXPECT_GT(stages.at(0).at("engine_weights"), 0);
  EXPECT_EQ(stages.at(1).at("engine_weights"), stages.at(0).at("engine_weights"));
}

// If the data is not read, the plan assumes that an example fills a microbatch, up to the model's
// max positions.
TEST(Plan, ExamplesThatAreNotReadAreNoted) {
  const Json json = plan_qwen({"--gpus", "1"}, {"train.loss_type=sft", "train.global_batch_size=32",
                                                "train.max_tokens_per_gpu=50000"});
  EXPECT_EQ(json.at("lengths").at("longest_trained"), 40960);
  EXPECT_EQ(phase_seconds(json, "generation"), 0);
  EXPECT_NE(json.at("notes").dump().find("examples were not read"), std::string::npos);
}

// Counted by hand. 256 microbatches of one sequence of 256 + 16384 tokens; a rank of TP 8 x CP 2
// has 1040 rows of 5120 bf16 elements. A middle stage sends the rows forward and their gradients
// backward. Each of its 23 expert layers sends every row to 8 experts, 15 / 16 of them on other
// ranks, in five transfers: dispatch and combine in forward; dispatch of rows, dispatch of
// gradients and combine of gradients in backward. A few 4-byte numbers per choice are neglected.
TEST(Plan, BytesAreThoseOfTheRows) {
  const Finished f = plan("glm4.7-355b", "GLM-4.7", {"--json"});
  const Json json = Json::parse(f.out);
  EXPECT_EQ(json.at("microbatches"), 256);
  const auto bytes_over = [&](const std::string& what) {
    for (const Json& link : json.at("stages").at(1).at("links"))
      if (link.at("what") == what) return link.at("bytes").get<double>();
    return 0.0;
  };
  const double rows = 1040.0 * 5120 * 2 * 256;
  EXPECT_EQ(bytes_over("pipeline: rows between stages"), 2 * rows);
  const double routed = 23 * 5 * 8 * rows * 15 / 16;
  EXPECT_NEAR(bytes_over("expert parallel: dispatch and combine") / routed, 1, 0.01);
}

// The run of the previous test with two ranks per expert of 1536 columns. Each rank sends whole
// rows three times: they are gathered in forward and in backward, and their gradients are reduced.
// It sends half rows twice, once in forward and once in backward. It sends its share of the 1536
// columns three times.
TEST(Plan, BytesInsideExpertsAreThoseOfRowsAndColumns) {
  const Finished f = plan("glm4.7-355b", "GLM-4.7",
                          {"--json", "--set", "parallel.expert_model_parallel_size=8",
                           "parallel.expert_tensor_parallel_size=2"});
  const Json json = Json::parse(f.out);
  const auto bytes_over = [&](const std::string& what) {
    for (const Json& link : json.at("stages").at(1).at("links"))
      if (link.at("what") == what) return link.at("bytes").get<double>();
    return 0.0;
  };
  const double routed = 23 * 8 * 1040.0 * 5120 * 2 * 256;
  EXPECT_NEAR(bytes_over("expert parallel: dispatch and combine") / (5 * routed * 7 / 8), 1, 0.01);
  EXPECT_NEAR(bytes_over("expert tensor parallel: rows and columns") /
                  (routed * (3 + 2 * 0.5 + 3 * 1536.0 / 5120)),
              1, 0.01);
}

// NCCL takes the same memory per rank for any number of ranks above one, and none for one rank.
TEST(Plan, SeveralRanksLeaveRoomForNccl) {
  const auto driver = [](const char* gpus) {
    const Finished f = plan("glm-z1-9b-colocated", "GLM-Z1-9B-0414", {"--gpus", gpus});
    const size_t at = f.out.find("driver and libraries");
    EXPECT_NE(at, std::string::npos) << f.text();
    return f.out.substr(at, f.out.find('\n', at) - at);
  };
  EXPECT_NE(driver("1").find("700.0 MiB"), std::string::npos) << driver("1");
  EXPECT_NE(driver("2").find("2.6 GiB"), std::string::npos) << driver("2");
  EXPECT_EQ(driver("2"), driver("8"));
}

// The plan also prints memory without the driver, because a run reports its own memory that way.
TEST(Plan, MemoryIsTherePlainAndWithoutTheDriver) {
  const Finished f = plan("glm-z1-9b-colocated", "GLM-Z1-9B-0414", {"--gpus", "2"});
  const auto gib = [&](const std::string& row) {
    const size_t at = f.out.find(row);
    EXPECT_NE(at, std::string::npos) << row << "\n" << f.text();
    return at == std::string::npos ? 0.0 : std::stod(f.out.substr(at + row.size()));
  };
  const double driver = gib("\ndriver and libraries"), all = gib("\ntotal");
  EXPECT_NEAR(gib("without driver and libraries"), all - driver, 0.11);
}

// The TP group is also the ETP group, so both kinds of traffic are listed as one link.
TEST(Plan, LinksThatAreOneAreListedOnce) {
  const Finished f = plan("glm4.5-355b", "GLM-4.5",
                          {"--json", "--set", "parallel.expert_model_parallel_size=2",
                           "parallel.expert_tensor_parallel_size=8"});
  const Json json = Json::parse(f.out);
  int of_tp = 0;
  for (const Json& link : json.at("stages").at(1).at("links")) {
    const auto what = link.at("what").get<std::string>();
    if (what.find("tensor parallel") == std::string::npos) continue;
    EXPECT_EQ(what,
              "tensor parallel: rows of activations; expert tensor parallel: rows and columns");
    ++of_tp;
  }
  EXPECT_EQ(of_tp, 1);
}

// With twice the ranks, each rank has half the optimizer state and half the microbatches.
TEST(Plan, MoreRanksTakeLess) {
  const Json four =
      Json::parse(plan("glm-z1-9b-colocated", "GLM-Z1-9B-0414", {"--gpus", "4", "--json"}).out);
  const Json eight =
      Json::parse(plan("glm-z1-9b-colocated", "GLM-Z1-9B-0414", {"--gpus", "8", "--json"}).out);
  const auto state = [](const Json& json) {
    return bytes_of(json.at("stages").at(0), "optimizer state");
  };
  EXPECT_NEAR(state(four), 2 * state(eight), 1e6);
  EXPECT_EQ(four.at("microbatches").get<int>(), 2 * eight.at("microbatches").get<int>());
}

// Activations and resident memory add up to the total. More context parallelism alone does not
// help, because the microbatch grows with it.
TEST(Plan, WhatDoesNotFitAddsUpAndIsFollowedByWhatFits) {
  const std::string recipe = "glm4.7-flash-30b", model = "GLM-4.7-Flash";
  const std::vector<std::string> h100 = {"--gpus",
                                         "8",
                                         "--gpu",
                                         "H100",
                                         "--json",
                                         "--set",
                                         "train.max_tokens_per_gpu=32768",
                                         "rollout.rollout_max_response_len=32768",
                                         "rollout.rollout_batch_size=128",
                                         "train.global_batch_size=1024",
                                         "rollout.mem_fraction_static=0.8",
                                         "rollout.max_running_requests=512"};
  const Finished f = plan(recipe, model, h100);
  EXPECT_EQ(f.status, 2) << f.text();
  const Json json = Json::parse(f.out), &stage = json.at("stages").at(0);
  EXPECT_EQ(stage.at("used").get<int64_t>(),
            stage.at("limit").get<int64_t>() + stage.at("missing").get<int64_t>());
  EXPECT_EQ(stage.at("needed_pool"), stage.at("activations_least"));
  const auto first = json.at("fits_with").at(0).get<std::string>();
  EXPECT_EQ(first, "parallel.context_parallel_size: 2 with train.max_tokens_per_gpu: 17408");
  const auto with_settings = [&](const std::vector<std::string>& settings) {
    std::vector<std::string> words = h100;
    words.insert(words.end(), settings.begin(), settings.end());
    return plan(recipe, model, words).status;
  };
  EXPECT_EQ(with_settings({"parallel.context_parallel_size=2"}), 2);
  EXPECT_EQ(with_settings({"parallel.context_parallel_size=2", "train.max_tokens_per_gpu=17408"}),
            0);
}

// The advice never names settings that are already set or that the configuration would refuse.
TEST(Plan, AdviceKnowsWhatIsSet) {
  const Finished f = plan("glm-z1-9b-colocated", "GLM-Z1-9B-0414",
                          {"--gpus", "1", "--gpu", "h100", "--set",
                           "optimizer.state_dtype=bfloat16", "parallel.actor_num_gpus=1"});
  EXPECT_EQ(f.status, 2);
  EXPECT_NE(f.out.find("fits with: optimizer.optimizer_cpu_offload: true\n"), std::string::npos)
      << f.out;
  EXPECT_NE(f.out.find("which frees 70."), std::string::npos) << f.out;
  for (const char* part : {"state_dtype", "--gpus"})
    EXPECT_EQ(f.out.find(part), std::string::npos) << f.out;
}

TEST(Plan, ColumnsAreWhole) {
  const Finished f = plan("glm-z1-9b-colocated", "GLM-Z1-9B-0414", {"--gpus", "1"});
  EXPECT_EQ(f.out.find("\xE2\x80\xA6"), std::string::npos) << f.out;
  EXPECT_NE(f.out.find("grid       1 rank = tp 1"), std::string::npos) << f.out;
}

TEST(Plan, Refusals) {
  Finished f = plan("glm4.5-355b", "GLM-4.5", {"--gpus", "48"});
  EXPECT_EQ(f.status, 2);
  EXPECT_NE(f.err.find("is 64, but the run has 48 ranks"), std::string::npos) << f.err;
  f = plan("glm4.7-flash-30b-16gpus", "GLM-4.7-Flash", {"--gpus", "8"});
  EXPECT_EQ(f.status, 2);
  EXPECT_NE(f.err.find("8 ranks are not divisible by etp 1 x ep 8 x pp 2 = 16"), std::string::npos)
      << f.err;
  f = plan("glm-z1-9b-colocated", "GLM-Z1-9B-0414", {"--gpu", "b200"});
  EXPECT_EQ(f.status, 2);
  EXPECT_NE(f.err.find("\"b200\" is not a GPU that plan knows"), std::string::npos) << f.err;
  // The kernels do not support this model's sizes; the hint names --gpu, because plan has no
  // --device.
  f = run_slimexx({"plan", "--config", test_data_path("../configs/glm-z1-9b-colocated.yaml"),
                   "--gpus", "1", "--set",
                   "model.hf_checkpoint=" + test_data_path("golden/models/glm4_odd"),
                   "rollout.rollout_max_response_len=8", "rollout.rollout_max_prompt_len=8"});
  EXPECT_EQ(f.status, 2);
  EXPECT_NE(f.err.find("use --gpu cpu"), std::string::npos) << f.err;
  f = plan("glm-z1-9b-colocated", "GLM-Z1-9B-0414", {"--gpus", "4", "--response-tokens", "100000"});
  EXPECT_EQ(f.status, 2);
  EXPECT_NE(f.err.find("is 100000, above rollout.rollout_max_response_len"), std::string::npos)
      << f.err;
  f = plan("glm-z1-9b-colocated", "GLM-Z1-9B-0414",
           {"--gpus", "4", "--set", "rollout.rollout_stop_token_ids=[151552]"});
  EXPECT_EQ(f.status, 2);
  EXPECT_NE(f.err.find("holds 151552, but the model's vocabulary has 151552"), std::string::npos)
      << f.err;
  f = plan("glm-z1-9b-colocated", "GLM-Z1-9B-0414", {"--gpus", "1", "--gpu", "h100"});
  EXPECT_EQ(f.status, 2);
  EXPECT_NE(f.out.find("NO         stage 0 does not fit by"), std::string::npos) << f.out;
  EXPECT_NE(f.out.find("optimizer_cpu_offload: true"), std::string::npos) << f.out;
  EXPECT_NE(f.err.find("GiB are missing on a rank"), std::string::npos) << f.err;
}

}  // namespace
}  // namespace slimexx::cli
