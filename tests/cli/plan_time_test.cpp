// `slimexx plan`: the parts of its time estimates.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "plan_recipe.h"

namespace slimexx::cli {
namespace {

// The bubble of four stages is three microbatches. ZB-H1, which separates weight gradients, leaves
// a third of it; so do three virtual stages per rank, except for their additional transfers.
TEST(Plan, TheScheduleDecidesWhatThePipelineWaits) {
  const std::string pp = "parallel.pipeline_model_parallel_size=4";
  const std::vector<std::string> four = {"--gpus", "4"};
  const Json plain = plan_qwen(four, {pp, "rl.use_kl_loss=true"});
  const Json apart = plan_qwen(four, {pp, "rl.use_kl_loss=true", "train.pipeline_schedule=zb_h1"});
  const Json interleaved =
      plan_qwen(four, {pp, "parallel.num_layers_per_virtual_pipeline_stage=3"});
  const double m = plain.at("microbatches").get<double>(),
               seconds = phase_seconds(plain, "training");
  EXPECT_NEAR(phase_seconds(apart, "training") / seconds, (m + 1) / (m + 3), 1e-9);
  EXPECT_GT(phase_seconds(plain, "reference"), 0);
  EXPECT_NEAR(phase_seconds(apart, "reference"), phase_seconds(plain, "reference"), 1e-9);
  EXPECT_LT(phase_seconds(interleaved, "training"), seconds);
}

// NVLink has 400 GB/s on the H800 and 900 GB/s on the H100, by the data sheets.
TEST(Plan, LinksOfAnH800AreSlower) {
  const std::vector<std::string> tp = {"parallel.tensor_model_parallel_size=2"};
  const auto seconds = [&](const char* gpu) {
    const Json json = plan_qwen({"--gpus", "2", "--gpu", gpu}, tp);
    return json.at("stages").at(0).at("links").at(0).at("seconds").get<double>();
  };
  EXPECT_NEAR(seconds("h800") / seconds("h100"), 9.0 / 4, 1e-9);
}

// Frozen weights save the weight-gradient products, a third of all products with weights; attention
// scores and values have no weights, so the total saving is less.
TEST(Plan, FrozenWeightsShortenTraining) {
  const Json whole = plan_qwen({"--gpus", "1"}, {});
  const Json norms = plan_qwen({"--gpus", "1"}, {"train.only_train_params_name_list=[norm]"});
  const auto flops = [](const Json& json) {
    return json.at("stages").at(0).at("flops_per_microbatch").get<double>();
  };
  EXPECT_GT(flops(norms) / flops(whole), 2.0 / 3);
  EXPECT_LT(flops(norms) / flops(whole), 0.75);
  EXPECT_NEAR(phase_seconds(norms, "training") / phase_seconds(whole, "training"),
              flops(norms) / flops(whole), 1e-6);
}

// Counted by hand. With 256 sequences, each of 40 layers has two all-reduces, each 9.5 us plus the
// other rank's 256 rows of 4096 bf16 at 350 GB/s. Then the other half of 151,552 f32 logits is
// gathered. With replicated MLPs a layer has one all-reduce. 16 sequences use the low-latency
// protocol: 2.3 us plus 16 rows, doubled by flags.
TEST(Plan, DecodeStepsOfSeveralRanksExchange) {
  const auto plan_engines = [](const std::vector<std::string>& rollout) {
    std::vector<std::string> words = {"--gpus", "2",    "--gpu", "h100", "--response-tokens",
                                      "2048",   "--set"};
    for (const std::string& setting : rollout) words.push_back("rollout." + setting);
    words.insert(words.end(),
                 {"parallel.tensor_model_parallel_size=2", "optimizer.optimizer_cpu_offload=true",
                  "rollout.rollout_max_response_len=2048"});
    const Finished f = plan("glm-z1-9b-colocated", "GLM-Z1-9B-0414", words);
    EXPECT_EQ(f.status, 0) << f.text();
    return f.out;
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  const std::string one = plan_engines({"rollout_num_gpus_per_engine=1"}),
                    two = plan_engines({"rollout_num_gpus_per_engine=2"}),
                    few =
                        plan_engines({"rollout_num_gpus_per_engine=2", "max_running_requests=16"}),
                    whole_mlps =
                        plan_engines({"rollout_num_gpus_per_engine=2", "moe_dense_tp_size=1"});
  EXPECT_FALSE(has(one, "of communication between")) << one;
  EXPECT_TRUE(has(two, ", and 1.5 ms of communication between 2 ranks")) << two;
  EXPECT_TRUE(has(few, ", and 0.3 ms of communication between 2 ranks")) << few;
  EXPECT_TRUE(has(whole_mlps, ", and 0.8 ms of communication between 2 ranks")) << whole_mlps;
}

// Counted by hand at 3.95 TB/s. 36 layers have 0.85 ms of fixed latency. 256 sequences: the
// products, 2.06 TFLOP, take 3.4 ms at 600 TFLOP/s (reading their 8.04 GB would take 2.0 ms); the
// KV cache, on average 756 tokens of 147,456 bytes per sequence, and 151,936 logits of 12 bytes
// take 7.3 ms. 8 sequences: the weights take 2.0 ms, cache and logits 0.2 ms.
TEST(Plan, DecodeStepsWaitForProductsOrWeights) {
  const auto plan_steps = [](const std::string& running) {
    return plan(
               "qwen3-4b", "Qwen3-4B",
               {"--gpu", "h200", "--response-tokens", "1000", "--set",
                "rollout.rollout_max_response_len=1000", "rollout.max_running_requests=" + running})
        .out;
  };
  const std::string many = plan_steps("256"), few = plan_steps("8");
  EXPECT_NE(many.find(" steps of 11.6 ms: 37.0 GB at 93 % of copy"), std::string::npos) << many;
  EXPECT_NE(few.find(" steps of 3.1 ms: 9.0 GB at 93 % of copy"), std::string::npos) << few;
}

// Each of 46 expert layers has a dispatch and a combine. Each takes 33.5 us (9.5 us, and 24 us more
// for 8 ranks) plus the bytes of 64 rows of 2048 for four choices.
TEST(Plan, DecodeStepsExchangeRowsWithExperts) {
  const Finished f = plan(
      "glm4.7-flash-30b", "GLM-4.7-Flash",
      {"--gpus", "8", "--set", "rollout.rollout_batch_size=128", "train.global_batch_size=1024",
       "rollout.max_running_requests=512", "rollout.rollout_max_response_len=32768",
       "train.max_tokens_per_gpu=32768", "rollout.mem_fraction_static=0.8"});
  EXPECT_EQ(f.status, 0) << f.text();
  EXPECT_NE(f.out.find(", and 3.3 ms of communication between 8 ranks"), std::string::npos)
      << f.out;
}

}  // namespace
}  // namespace slimexx::cli
