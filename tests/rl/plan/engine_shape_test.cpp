#include "slimexx/rl/engine_shape.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model/random_model.h"
#include "slimexx/base/error.h"

namespace slimexx::rl {
namespace {

RolloutOptions engines(int64_t ranks, int64_t dp, int64_t ep) {
  RolloutOptions options;
  options.rollout_num_gpus_per_engine = ranks;
  options.dp_size = dp;
  options.enable_dp_attention = dp > 1;
  options.ep_size = ep;
  return options;
}

// Eight experts in MoE families, 2 KV heads in families with grouped-query attention.
model::ModelSpec spec_of(const std::string& family, int64_t num_heads = 16) {
  return model::random_spec(family,
                            {.vocab_size = 320,
                             .hidden_size = 64,
                             .intermediate_size = 640,
                             .head_dim = 8,
                             .max_positions = 128,
                             .num_heads = num_heads},
                            0.25);
}

TEST(EngineShape, FollowsTheOptions) {
  const model::ModelSpec spec = spec_of("glm4_moe_lite");
  const EngineShape alone = make_engine_shape({}, {.tp = 4}, 8, &spec);
  EXPECT_EQ(alone.num_engines, 8);
  EXPECT_EQ(alone.num_ranks, 1);
  EXPECT_EQ(alone.leaves, 4);
  const EngineShape wide = make_engine_shape(engines(8, 4, 8), {.tp = 2, .ep = 4}, 16, &spec);
  EXPECT_EQ(wide.num_engines, 2);
  EXPECT_EQ(wide.num_ranks, 8);
  EXPECT_EQ(wide.sizes.tp, 2);
  EXPECT_EQ(wide.sizes.ep, 8);
  EXPECT_EQ(wide.sizes.pp * wide.sizes.cp * wide.sizes.etp, 1);
  EXPECT_EQ(wide.leaves, 2);
  EXPECT_EQ(wide.dense_tp, 2);
  RolloutOptions replicated = engines(8, 4, 8);
  replicated.moe_dense_tp_size = 1;
  EXPECT_EQ(make_engine_shape(replicated, {.tp = 2, .ep = 4}, 16, &spec).dense_tp, 1);
  // Training on one tp rank uses the engine's number of leaves.
  EXPECT_EQ(make_engine_shape(engines(4, 1, 4), {.pp = 2}, 8, &spec).leaves, 4);
  // Eight experts, three times each, on 24 ranks.
  RolloutOptions redundant = engines(24, 6, 24);
  redundant.ep_num_redundant_experts = 16;
  const EngineShape copies = make_engine_shape(redundant, {.tp = 4, .ep = 8}, 24, &spec);
  EXPECT_EQ(copies.redundant_experts, 16);
  EXPECT_EQ(describe_engine(copies), "6 attention groups of TP 4, EP 24 with 16 redundant experts");
  const model::ModelSpec engine_spec = make_engine_spec(copies, spec);
  EXPECT_EQ(std::get<model::MoeMlpSpec>(engine_spec.layers.back().mlp).expert_copies, 24);
  EXPECT_FALSE(holds_trained_shards(copies, {.tp = 4, .ep = 24}, spec));
  // The experts of an engine of eight ranks are split over two or four ranks.
  EXPECT_EQ(make_engine_shape(engines(8, 4, 2), {}, 8, &spec).sizes.ep, 2);
  EXPECT_EQ(make_engine_shape(engines(8, 1, 4), {}, 8, &spec).sizes.ep, 4);
  // Every rank of an attention group holds all experts.
  EXPECT_EQ(make_engine_shape(engines(2, 1, 1), {}, 8, &spec).sizes.tp, 2);
  // Every rank of an engine with purely data-parallel attention holds all experts.
  EXPECT_EQ(make_engine_shape(engines(4, 4, 1), {}, 4, &spec).sizes.tp, 1);
}

struct Refusal {
  const char* name;
  RolloutOptions options;
  dist::GridSizes trainer;
  int world_size;
  std::string family;
  int64_t num_heads;
  std::string key, what, hint;
};

TEST(EngineShape, SizesThatDoNotFitAreRefusedWithTheNearestThatDo) {
  RolloutOptions other_dense = engines(4, 1, 1);
  other_dense.moe_dense_tp_size = 2;
  RolloutOptions silent_dp = engines(4, 2, 1);
  silent_dp.enable_dp_attention = false;
  RolloutOptions head_alone = engines(4, 1, 1);
  head_alone.enable_dp_lm_head = true;
  RolloutOptions too_redundant = engines(4, 4, 4);
  too_redundant.ep_num_redundant_experts = 25;
  RolloutOptions whole_and_redundant = engines(2, 1, 1);
  whole_and_redundant.ep_num_redundant_experts = 2;
  const Refusal refusals[] = {
      {"world",
       engines(3, 1, 1),
       {},
       8,
       "",
       16,
       "rollout.rollout_num_gpus_per_engine",
       "8 ranks cannot be divided into engines of 3 ranks",
       "rollout_num_gpus_per_engine 4, dp_size 1, ep_size 1"},
      {"groups",
       engines(4, 3, 1),
       {},
       8,
       "",
       16,
       "rollout.dp_size",
       "rollout_num_gpus_per_engine 4 % dp_size 3 = 1",
       "rollout_num_gpus_per_engine 4, dp_size 4 with enable_dp_attention: true, ep_size 1"},
      {"more groups than ranks",
       engines(4, 8, 1),
       {},
       8,
       "",
       16,
       "rollout.dp_size",
       "rollout_num_gpus_per_engine 4 % dp_size 8 = 4",
       "rollout_num_gpus_per_engine 4, dp_size 4 with enable_dp_attention: true, ep_size 1"},
      {"switch",
       silent_dp,
       {},
       8,
       "",
       16,
       "rollout.dp_size",
       "rollout.enable_dp_attention is false",
       "set enable_dp_attention: true"},
      {"head",
       head_alone,
       {},
       8,
       "",
       16,
       "rollout.enable_dp_lm_head",
       "is true, and rollout.enable_dp_attention is false",
       "set enable_dp_attention: true"},
      {"ranks of experts",
       engines(4, 1, 3),
       {},
       8,
       "glm4_moe",
       16,
       "rollout.ep_size",
       "rollout_num_gpus_per_engine 4 % ep_size 3 = 1",
       "rollout_num_gpus_per_engine 4, dp_size 1, ep_size 2"},
      {"groups across experts",
       engines(12, 3, 6),
       {},
       12,
       "glm4_moe",
       16,
       "rollout.ep_size",
       "attention TP 4 = rollout_num_gpus_per_engine 12 / dp_size 3, and ep_size 6: neither is a "
       "multiple of the other",
       "rollout_num_gpus_per_engine 12, dp_size 3 with enable_dp_attention: true, ep_size 4"},
      {"more ranks than experts",
       engines(16, 16, 16),
       {},
       16,
       "glm4_moe",
       16,
       "rollout.ep_size",
       "8 experts and 0 redundant ones on ep_size 16: each rank must hold at least one, and no "
       "expert twice",
       "rollout_num_gpus_per_engine 16, dp_size 16 with enable_dp_attention: true, ep_size 8"},
      {"more copies than ranks",
       too_redundant,
       {},
       4,
       "glm4_moe",
       16,
       "rollout.ep_num_redundant_experts",
       "8 experts and 25 redundant ones on ep_size 4",
       "rollout_num_gpus_per_engine 4, dp_size 4 with enable_dp_attention: true, ep_size 4, "
       "ep_num_redundant_experts 24"},
      {"redundant, and all on every rank",
       whole_and_redundant,
       {},
       4,
       "glm4_moe",
       16,
       "rollout.ep_num_redundant_experts",
       "is 2, but with ep_size 1 every rank holds all experts",
       "rollout_num_gpus_per_engine 2, dp_size 1, ep_size 1, without ep_num_redundant_experts"},
      {"no experts to share by another number",
       engines(4, 1, 3),
       {},
       8,
       "qwen3",
       16,
       "rollout.ep_size",
       "rollout_num_gpus_per_engine 4 % ep_size 3 = 1",
       "rollout_num_gpus_per_engine 4, dp_size 1, ep_size 1"},
      {"no experts",
       engines(2, 1, 2),
       {},
       8,
       "qwen3",
       16,
       "rollout.ep_size",
       "the model has no experts",
       "rollout_num_gpus_per_engine 2, dp_size 1, ep_size 1"},
      {"leaves",
       engines(2, 1, 1),
       {.tp = 4},
       8,
       "qwen3",
       16,
       "rollout.rollout_num_gpus_per_engine",
       "attention TP 2 = rollout_num_gpus_per_engine 2 / dp_size 1, and "
       "parallel.tensor_model_parallel_size 4",
       "rollout_num_gpus_per_engine 4, dp_size 1, ep_size 1"},
      {"20 heads",
       engines(8, 1, 8),
       {},
       8,
       "glm4_moe_lite",
       20,
       "rollout.rollout_num_gpus_per_engine",
       "num_attention_heads 20 %",
       "rollout_num_gpus_per_engine 8, dp_size 2 with enable_dp_attention: true, ep_size 8"},
      {"3 copies of 2 heads",
       engines(3, 1, 1),
       {},
       6,
       "llama",
       12,
       "rollout.rollout_num_gpus_per_engine",
       "num_key_value_heads 2",
       "rollout_num_gpus_per_engine 2, dp_size 1, ep_size 1"},
      {"dense",
       other_dense,
       {},
       4,
       "qwen3",
       16,
       "rollout.moe_dense_tp_size",
       "dense layers are either split like attention or replicated on every rank",
       "nearest valid size: moe_dense_tp_size 4"},
  };
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.name);
    model::ModelSpec spec;
    if (!refusal.family.empty()) spec = spec_of(refusal.family, refusal.num_heads);
    try {
      make_engine_shape(refusal.options, refusal.trainer, refusal.world_size,
                        refusal.family.empty() ? nullptr : &spec);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage);
      EXPECT_EQ(error.where(), refusal.key);
      EXPECT_NE(error.message().find(refusal.what), std::string::npos) << error.what();
      EXPECT_NE(error.hint().find(refusal.hint), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace slimexx::rl
