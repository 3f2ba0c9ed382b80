// `train` on a device, run like a user: rollouts, exactness, updates, and a repeated run.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <span>

#include "e2e/small_run.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::e2e {
namespace {

// Head sizes that the kernels support, and room for responses beyond a segment of 1024 keys.
constexpr const char* kDeviceSizes = R"({
  "hidden_size": 128, "intermediate_size": 200, "head_dim": 64, "num_attention_heads": 4,
  "num_key_value_heads": 2, "moe_intermediate_size": 72, "initializer_range": 0.12, "max_position_embeddings": 2048
})";

// Like kDeviceSizes, for latent attention, whose head sizes are in other keys.
constexpr const char* kLatentDeviceSizes = R"({
  "hidden_size": 128, "intermediate_size": 200, "kv_lora_rank": 512, "q_lora_rank": 48, "qk_nope_head_dim": 64,
  "qk_rope_head_dim": 64, "qk_head_dim": 128, "head_dim": 64, "v_head_dim": 72, "num_attention_heads": 4,
  "num_key_value_heads": 4, "moe_intermediate_size": 72, "initializer_range": 0.12, "max_position_embeddings": 2048
})";
bool is_latent(const std::string& family) {
  return family == "glm4_moe_lite" || family == "deepseek_v3" || family == "glm_moe_dsa";
}

// With these sizes, sparse attention of longer responses selects keys from several blocks.
std::string device_sizes(const std::string& family) {
  if (!is_latent(family)) return kDeviceSizes;
  Json sizes = parse_json(kLatentDeviceSizes, "sizes");
  if (family == "glm_moe_dsa") sizes.update({{"index_head_dim", 72}, {"index_topk", 150}});
  return sizes.dump();
}

class TrainCuda : public testing::TestWithParam<Family> {
 protected:
  void SetUp() override {
    if (tensor::count_cuda_devices() == 0) GTEST_SKIP() << "no GPU";
    make_checkpoint(folder_, GetParam().model, device_sizes(GetParam().name));
    make_prompts(folder_);
  }
  // Runs on one device, which `thread_ranks` ranks share.
  std::vector<Json> train(const std::string& name, const std::vector<std::string>& settings,
                          int thread_ranks = 0) {
    std::vector<std::string> flags;
    if (thread_ranks > 0) flags.push_back("--thread-ranks=" + std::to_string(thread_ranks));
    return run(0, name, settings, flags);
  }
  // Runs with one device per rank, over NCCL.
  std::vector<Json> train_on_devices(int num_devices, const std::string& name,
                                     const std::vector<std::string>& settings) {
    return run(num_devices, name, settings, {});
  }
  std::vector<Json> run(int num_processes, const std::string& name,
                        const std::vector<std::string>& settings,
                        const std::vector<std::string>& flags) {
    const std::string run_dir = folder_ / name;
    std::vector<std::string> arguments = train_arguments(folder_, run_dir, settings);
    arguments.insert(arguments.end(), {"--device", "cuda"});
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const Finished f = run_slimexx(num_processes, arguments);
    EXPECT_EQ(f.status, 0) << f.text();
    EXPECT_NE(f.err.find("tokens compared bit for bit"), std::string::npos) << f.err;
    return read_rows(run_dir + "/metrics.jsonl");
  }
  // `least_tokens`: minimum number of tokens in all rollouts together.
  void expect_exact(const std::vector<Json>& rows, double least_tokens) {
    ASSERT_EQ(rows.size(), 3u);
    double tokens = 0;
    for (const Json& row : rows) {
      EXPECT_EQ(number(row, "train/mismatch_tokens"), 0) << row.dump();
      EXPECT_EQ(number(row, "train/train_rollout_logprob_max_diff"), 0);
      EXPECT_GT(number(row, "train/grad_norm"), 0);
      tokens += number(row, "rollout/num_tokens");
    }
    EXPECT_GT(tokens, least_tokens);
  }

  Folder folder_;
};

TEST_P(TrainCuda, EveryTokenIsExactAndTheRunRepeats) {
  const std::vector<std::string> settings = {
      "rollout.max_total_tokens=256", "rollout.chunked_prefill_size=20",
      "rollout.rollout_temperature=0.7", "train.num_steps_per_rollout=2",
      "numerics.recompute_old_log_probs=true"};
  const std::vector<Json> first = train("first", settings), again = train("again", settings);
  expect_exact(first, 500);
  ASSERT_EQ(again.size(), first.size());
  for (size_t i = 0; i < first.size(); ++i)
    for (const char* key : {"train/loss", "train/grad_norm", "rollout/num_tokens"})
      EXPECT_EQ(number(first[i], key), number(again[i], key)) << key << " of rollout " << i;
}

// Responses are long enough for several blocks of keys; some reach the next segment.
TEST_P(TrainCuda, LongResponsesAreExact) {
  expect_exact(
      train("long", {"rollout.rollout_max_response_len=1200", "rollout.max_running_requests=7",
                     "train.max_tokens_per_gpu=4096", "optimizer.lr=1.0e-4"}),
      2000);
}

// Ranks that are threads share the device. Engines use the leaves of tensor parallelism.
TEST_P(TrainCuda, GridsOnOneDeviceAreExact) {
  const std::string tp = "parallel.tensor_model_parallel_size=2";
  const std::string pp = "parallel.pipeline_model_parallel_size=2";
  const std::string cp = "parallel.context_parallel_size=2";
  const std::string ep = "parallel.expert_model_parallel_size=2";
  const bool has_experts = GetParam().model.starts_with("oracle/");
  const std::string etp = "parallel.expert_tensor_parallel_size=1";
  std::vector<std::vector<std::string>> grids = {{tp, pp, etp}, {tp, cp, etp}, {}};
  if (has_experts) grids.push_back({tp, pp, ep, etp});
  for (size_t i = 0; i < grids.size(); ++i) {
    SCOPED_TRACE(i);
    grids[i].insert(grids[i].end(), {"debug.check_weight_hash=true", "rollout.kv_cache_gib=0.05"});
    expect_exact(train("grid" + std::to_string(i), grids[i], 4), 300);
  }
}

// The reference is in host memory between rollouts. It equals the initial policy to the bit.
TEST_P(TrainCuda, ReferenceComesAndGoes) {
  const std::vector<std::string> settings = {"model.ref_load=" + (folder_ / "model"),
                                             "rl.use_kl_loss=true",
                                             "rl.kl_loss_coef=0.01",
                                             "rl.kl_loss_type=k1",
                                             "optimizer.lr=0.001",
                                             "rollout.kv_cache_gib=0.05"};
  std::vector<std::string> on_grid = settings;
  on_grid.insert(on_grid.end(), {"parallel.tensor_model_parallel_size=2",
                                 "parallel.pipeline_model_parallel_size=2",
                                 "parallel.expert_tensor_parallel_size=1"});
  for (const auto& rows : {train("reference", settings), train("reference4", on_grid, 4)}) {
    expect_exact(rows, 300);
    EXPECT_EQ(number(rows[0], "train/ref_kl"), 0);
    EXPECT_NE(number(rows[1], "train/ref_kl"), 0);
    EXPECT_NE(number(rows[2], "train/ref_kl"), number(rows[1], "train/ref_kl"));
  }
}

// Engines of several ranks, with another layout than the trainer's.
TEST_P(TrainCuda, EnginesOfRanksOnOneDeviceAreExact) {
  const std::string tp = "parallel.tensor_model_parallel_size=2";
  const std::string pp = "parallel.pipeline_model_parallel_size=2";
  const std::string etp = "parallel.expert_tensor_parallel_size=1";
  const auto ep = [](int n) { return "parallel.expert_model_parallel_size=" + std::to_string(n); };
  const auto engine = [](int ranks, int attention_groups, int experts) {
    return std::vector<std::string>{"rollout.rollout_num_gpus_per_engine=" + std::to_string(ranks),
                                    "rollout.dp_size=" + std::to_string(attention_groups),
                                    "rollout.enable_dp_attention=true",
                                    "rollout.ep_size=" + std::to_string(experts)};
  };
  struct Layouts {
    std::vector<std::string> trainer, engine;
  };
  const Layouts dense[] = {{{tp, pp, etp}, engine(2, 1, 1)}, {{pp, etp}, engine(2, 1, 1)}};
  const Layouts with_experts[] = {{{tp, pp, ep(2), etp}, engine(4, 2, 4)},
                                  {{pp, etp}, engine(4, 4, 4)},
                                  {{tp, ep(4), etp}, engine(2, 1, 2)}};
  const bool has_experts = GetParam().model.starts_with("oracle/");
  const std::span<const Layouts> all =
      has_experts ? std::span<const Layouts>(with_experts) : std::span<const Layouts>(dense);
  for (size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(i);
    std::vector<std::string> settings = all[i].trainer;
    settings.insert(settings.end(), all[i].engine.begin(), all[i].engine.end());
    settings.insert(settings.end(), {"debug.check_weight_hash=true", "rollout.kv_cache_gib=0.05"});
    expect_exact(train("engines" + std::to_string(i), settings, 4), 300);
  }
}

// Two processes with one device each test every axis and every kind of engine over NCCL.
TEST_P(TrainCuda, RanksOfTwoDevicesAreExact) {
  if (tensor::count_cuda_devices() < 2) GTEST_SKIP() << "too few GPUs";
  const std::string tp = "parallel.tensor_model_parallel_size=2";
  const std::string pp = "parallel.pipeline_model_parallel_size=2";
  const std::string cp = "parallel.context_parallel_size=2";
  const std::string ep = "parallel.expert_model_parallel_size=2";
  const std::string etp = "parallel.expert_tensor_parallel_size=";
  const std::string engine_of_two = "rollout.rollout_num_gpus_per_engine=2";
  const std::vector<std::string> attention_groups = {"rollout.dp_size=2",
                                                     "rollout.enable_dp_attention=true"};
  std::vector<std::vector<std::string>> layouts = {
      {},
      {tp, etp + "1"},
      {pp},
      {cp, "optimizer.optimizer_cpu_offload=true"},
      {tp, etp + "1", engine_of_two},
      {pp, engine_of_two},
      {"parallel.colocate=false", "parallel.actor_num_gpus=1", "parallel.rollout_num_gpus=1"}};
  if (GetParam().model.starts_with("oracle/")) {
    layouts.push_back({ep, engine_of_two, attention_groups[0], attention_groups[1],
                       "rollout.ep_size=2", "model.ref_load=" + (folder_ / "model"),
                       "rl.use_kl_loss=true", "rl.kl_loss_coef=0.01"});
    layouts.push_back({tp, ep, etp + "1", engine_of_two, "rollout.ep_size=2"});
    // Half an expert must be a multiple of 8 elements.
    Json sizes = parse_json(device_sizes(GetParam().name), "sizes");
    sizes["moe_intermediate_size"] = 80;
    const std::string even =
        make_checkpoint(folder_, GetParam().model, sizes.dump(), "even_experts");
    layouts.push_back({etp + "2", engine_of_two, attention_groups[0], attention_groups[1],
                       "rollout.ep_size=2", "model.hf_checkpoint=" + even});
  }
  for (size_t i = 0; i < layouts.size(); ++i) {
    std::string text;
    for (const std::string& setting : layouts[i]) text += setting + " ";
    SCOPED_TRACE(text);
    layouts[i].insert(layouts[i].end(),
                      {"debug.check_weight_hash=true", "rollout.kv_cache_gib=0.05"});
    expect_exact(train_on_devices(2, "devices" + std::to_string(i), layouts[i]), 300);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TrainCuda,
                         testing::Values(Family{"qwen3", "models/qwen3_tied_mqa"},
                                         Family{"glm4", "models/glm4_no_bias"},
                                         Family{"qwen3_moe", "oracle/qwen3_moe"},
                                         Family{"glm4_moe", "oracle/glm4_moe"},
                                         Family{"glm4_moe_lite", "oracle/glm4_moe_lite"},
                                         Family{"deepseek_v3", "oracle/deepseek_v3"},
                                         Family{"glm_moe_dsa", "oracle/glm_moe_dsa"}),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace slimexx::e2e
