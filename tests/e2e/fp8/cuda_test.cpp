// Runs with FP8 products, an FP8 cache or both on a device: training computes the log-probs of
// generation to the bit.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "e2e/small_run.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::e2e {
namespace {

using Settings = std::vector<std::string>;

constexpr const char* kSizes = R"({"hidden_size": 256, "num_attention_heads": 4,
  "num_key_value_heads": 4, "head_dim": 64, "intermediate_size": 512, "num_hidden_layers": 4,
  "initializer_range": 0.12, "max_position_embeddings": 2048})";

constexpr const char* kExperts = R"({"hidden_size": 128, "num_attention_heads": 4,
  "num_key_value_heads": 4, "head_dim": 64, "intermediate_size": 256,
  "moe_intermediate_size": 128, "num_hidden_layers": 4, "initializer_range": 0.12,
  "max_position_embeddings": 2048})";
constexpr const char* kLatent = R"({"hidden_size": 128, "num_attention_heads": 4,
  "num_key_value_heads": 4, "q_lora_rank": 128, "kv_lora_rank": 512, "qk_nope_head_dim": 64,
  "qk_rope_head_dim": 64, "qk_head_dim": 128, "head_dim": 64, "v_head_dim": 64,
  "intermediate_size": 256, "moe_intermediate_size": 128, "num_hidden_layers": 4,
  "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"], "initializer_range": 0.12,
  "max_position_embeddings": 2048})";

constexpr const char* kSparse = R"({"hidden_size": 128, "num_attention_heads": 4,
  "num_key_value_heads": 4, "q_lora_rank": 128, "kv_lora_rank": 512, "qk_nope_head_dim": 64,
  "qk_rope_head_dim": 64, "qk_head_dim": 128, "head_dim": 64, "v_head_dim": 64,
  "intermediate_size": 256, "moe_intermediate_size": 128, "index_head_dim": 128,
  "index_n_heads": 4, "index_topk": 150, "initializer_range": 0.12,
  "max_position_embeddings": 2048})";

struct Way {
  std::string name;
  int ranks = 1;
  Settings settings = {};
  double least_tokens = 300;
  std::string model = "models/qwen3_tied_mqa", sizes = kSizes;
  bool products = true, cache = false;  // computed in FP8
};
void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

std::vector<Way> list_product_ways() {
  const std::string tp2 = "parallel.tensor_model_parallel_size=2",
                    engine2 = "rollout.rollout_num_gpus_per_engine=2",
                    ep2 = "parallel.expert_model_parallel_size=2",
                    small = "rollout.kv_cache_gib=0.05";
  const std::string experts = "oracle/qwen3_moe", latent = "oracle/glm4_moe_lite";
  return {
      {"one", 1, {}},
      {"float_scales", 1, {"numerics.fp8_scale_fmt=float"}},
      {"preempts", 1, {"rollout.max_total_tokens=256", "rollout.chunked_prefill_size=20"}},
      {"drafts", 1, {"rollout.speculative_algorithm=NGRAM"}},
      {"long",
       1,
       {"rollout.rollout_max_response_len=1200", "rollout.max_running_requests=7",
        "train.max_tokens_per_gpu=4096", "optimizer.lr=1.0e-4"},
       2000},
      {"tp", 2, {tp2, engine2, small}},
      {"engine_tp", 2, {engine2, small}},
      {"trainer_tp", 2, {tp2, small}},
      {"pp", 2, {"parallel.pipeline_model_parallel_size=2", small}},
      {"cp", 2, {"parallel.context_parallel_size=2", small}},
      {"experts", 1, {}, 300, experts, kExperts},
      {"experts_ep", 2, {ep2, small}, 300, experts, kExperts},
      {"experts_engine_ep", 2, {ep2, engine2, "rollout.ep_size=2", small}, 300, experts, kExperts},
      {"latent", 1, {}, 300, latent, kLatent},
  };
}

std::vector<Way> list_cache_ways() {
  const std::string tp2 = "parallel.tensor_model_parallel_size=2",
                    engine2 = "rollout.rollout_num_gpus_per_engine=2",
                    cp2 = "parallel.context_parallel_size=2", small = "rollout.kv_cache_gib=0.05",
                    whole_experts = "parallel.expert_tensor_parallel_size=1";
  const Settings preempts = {"rollout.max_total_tokens=256", "rollout.chunked_prefill_size=20"};
  const Settings lengthy = {"rollout.rollout_max_response_len=1200",
                            "rollout.max_running_requests=7", "train.max_tokens_per_gpu=4096",
                            "optimizer.lr=1.0e-4"};
  const Settings drafts = {"rollout.speculative_algorithm=NGRAM"};
  const std::string plain = "models/llama", experts = "oracle/qwen3_moe",
                    latent = "oracle/glm4_moe_lite", sparse = "oracle/glm_moe_dsa";
  std::vector<Way> ways = {
      {"cache", 1, {}},
      {"cache_no_qk_norm", 1, {}, 300, plain},
      {"cache_large_pages", 1, {"rollout.page_size=64"}},
      {"cache_preempts", 1, preempts},
      {"cache_drafts", 1, drafts},
      {"cache_long", 1, lengthy, 2000},
      {"cache_tp", 2, {tp2, engine2, small}},
      {"cache_trainer_tp", 2, {tp2, small}},
      {"cache_cp", 2, {cp2, small}},
      {"cache_experts", 1, {}, 300, experts, kExperts},
      {"cache_latent", 1, {}, 300, latent, kLatent},
      {"cache_latent_preempts", 1, preempts, 300, latent, kLatent},
      {"cache_latent_drafts", 1, drafts, 300, latent, kLatent},
      {"cache_latent_long", 1, lengthy, 2000, latent, kLatent},
      {"cache_latent_tp", 2, {tp2, engine2, small, whole_experts}, 300, latent, kLatent},
      {"cache_latent_trainer_tp", 2, {tp2, small, whole_experts}, 300, latent, kLatent},
      {"cache_latent_cp", 2, {cp2, small}, 300, latent, kLatent},
      {"cache_sparse", 1, {}, 300, sparse, kSparse},
      {"cache_sparse_long", 1, lengthy, 2000, sparse, kSparse},
      {"cache_sparse_tp", 2, {tp2, engine2, small, whole_experts}, 300, sparse, kSparse},
  };
  for (Way& way : ways) way.products = false, way.cache = true;
  ways.push_back({"both", 1, {}});
  ways.push_back({"both_experts", 1, {}, 300, experts, kExperts});
  ways.push_back({"both_latent", 1, {}, 300, latent, kLatent});
  for (size_t i = ways.size() - 3; i < ways.size(); ++i) ways[i].cache = true;
  return ways;
}

class Fp8Cuda : public testing::TestWithParam<Way> {};

TEST_P(Fp8Cuda, TrainsOnItsOwnBits) {
  if (tensor::count_cuda_devices() == 0) GTEST_SKIP() << "no GPU";
  const Way& way = GetParam();
  const Folder folder;
  make_checkpoint(folder, way.model, way.sizes);
  make_prompts(folder);
  Settings all = {std::string("numerics.fp8=") + (way.products ? "on" : "off"),
                  std::string("rollout.kv_cache_dtype=") + (way.cache ? "fp8_e4m3" : "auto"),
                  "debug.check_weight_hash=true",
                  "rl.use_kl_loss=true",
                  "rl.kl_loss_coef=0.01",
                  "rl.kl_loss_type=k1",
                  "model.ref_load=" + (folder / "model")};
  all.insert(all.end(), way.settings.begin(), way.settings.end());
  all = train_arguments(folder, folder / "run", all);
  all.insert(all.end(), {"--device", "cuda", "--thread-ranks=" + std::to_string(way.ranks)});
  const Finished f = run_slimexx(0, all);
  ASSERT_EQ(f.status, 0) << f.text();
  const auto rows = read_rows(folder / "run/metrics.jsonl");
  ASSERT_EQ(rows.size(), 3u);
  double tokens = 0;
  for (const Json& row : rows) {
    EXPECT_EQ(number(row, "train/mismatch_tokens"), 0) << row.dump();
    if (way.products) EXPECT_GT(number(row, "train/fp8_changed"), 0);
    tokens += number(row, "train/compared_tokens");
  }
  EXPECT_GT(tokens, way.least_tokens);
  EXPECT_EQ(number(rows[0], "train/ref_kl"), 0);
  EXPECT_NE(number(rows[1], "train/ref_kl"), 0);
}

INSTANTIATE_TEST_SUITE_P(Products, Fp8Cuda, testing::ValuesIn(list_product_ways()),
                         [](const auto& instance) { return instance.param.name; });
INSTANTIATE_TEST_SUITE_P(Cache, Fp8Cuda, testing::ValuesIn(list_cache_ways()),
                         [](const auto& instance) { return instance.param.name; });

// Engines sample as with FP8 products, and training computes as without them.
class Fp8RolloutCuda : public testing::TestWithParam<Way> {};

TEST_P(Fp8RolloutCuda, EngineSamplesAsInFp8AndTrainingComputesWithoutIt) {
  if (tensor::count_cuda_devices() == 0) GTEST_SKIP() << "no GPU";
  const Way& way = GetParam();
  const Folder folder;
  make_checkpoint(folder, way.model, way.sizes);
  make_prompts(folder);
  const auto run = [&](const std::string& fp8, const Settings& more) {
    Settings all = {"numerics.fp8=" + fp8, "rollout.num_rollout=1",
                    "debug.dump_weights=" + (folder / (fp8 + "/first"))};
    all.insert(all.end(), way.settings.begin(), way.settings.end());
    all.insert(all.end(), more.begin(), more.end());
    all = train_arguments(folder, folder / fp8, all);
    all.insert(all.end(), {"--device", "cuda", "--thread-ranks=" + std::to_string(way.ranks)});
    const Finished f = run_slimexx(0, all);
    EXPECT_EQ(f.status, 0) << f.text();
    return f.status == 0 ? read_rows(folder / (fp8 + "/metrics.jsonl")).at(0) : Json();
  };
  const auto samples = [&](const std::string& fp8) {
    return folder / (fp8 + "/made/rollout_000000.jsonl");
  };
  const Json row = run("rollout_only", {"numerics.on_logprob_mismatch=ignore", "rl.use_tis=true",
                                        "debug.check_weight_hash=true",
                                        "debug.save_rollout=" + (folder / "rollout_only/made")});
  ASSERT_FALSE(row.is_null());
  EXPECT_GT(number(row, "train/mismatch_tokens"), 0);
  EXPECT_GT(number(row, "train/train_rollout_logprob_abs_diff"), 0);
  ASSERT_FALSE(run("on", {"debug.save_rollout=" + (folder / "on/made")}).is_null());
  EXPECT_EQ(read_bytes(samples("rollout_only")), read_bytes(samples("on")));
  const Json plain =
      run("off", {"rl.use_tis=true", "debug.load_rollout=" + samples("rollout_only")});
  ASSERT_FALSE(plain.is_null());
  EXPECT_EQ(number(row, "train/loss"), number(plain, "train/loss"));
  EXPECT_EQ(read_bytes(folder / "rollout_only/first/weights.safetensors"),
            read_bytes(folder / "off/first/weights.safetensors"));
}

INSTANTIATE_TEST_SUITE_P(Products, Fp8RolloutCuda, testing::ValuesIn(list_product_ways()),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace slimexx::e2e
