// Small models whose matrices are FP8 on one and two tensor-parallel ranks, and ways to run them.
#pragma once
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "e2e/small_run.h"

namespace slimexx::e2e {

using Settings = std::vector<std::string>;

// With these sizes two tensor-parallel ranks hold whole blocks. A head of latent attention has
// 64 nope rows, 64 rope rows and 64 value rows.
inline constexpr const char* kDense = R"({"hidden_size": 256, "num_attention_heads": 4,
  "num_key_value_heads": 4, "head_dim": 64, "intermediate_size": 256, "num_hidden_layers": 2})";
inline constexpr const char* kExperts = R"({"hidden_size": 128, "num_attention_heads": 4,
  "num_key_value_heads": 4, "head_dim": 64, "intermediate_size": 256,
  "moe_intermediate_size": 128, "num_hidden_layers": 2})";
inline constexpr const char* kLatent = R"({"hidden_size": 128, "num_attention_heads": 4,
  "num_key_value_heads": 4, "q_lora_rank": 128, "kv_lora_rank": 64, "qk_nope_head_dim": 64,
  "qk_rope_head_dim": 64, "qk_head_dim": 128, "v_head_dim": 64, "intermediate_size": 256,
  "moe_intermediate_size": 128, "num_hidden_layers": 2, "mlp_layer_types": ["dense", "sparse"]})";

struct Way {
  std::string name;
  std::string model, changes;
  int ranks = 1;
  Settings settings = {};
};
inline void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

// Trains two rollouts and returns the rows of metrics. `settings` come before those of the way. The
// reference is the model that the run starts from.
inline std::vector<Json> train_two_rollouts(const Way& way, Settings settings) {
  const Folder folder;
  make_checkpoint(folder, way.model, way.changes);
  make_prompts(folder);
  settings.insert(settings.end(),
                  {"debug.check_weight_hash=true", "rl.use_kl_loss=true", "rl.kl_loss_coef=0.01",
                   "rollout.num_rollout=2", "model.ref_load=" + (folder / "model"),
                   "checkpoint.save_hf=" + (folder / "hf")});
  settings.insert(settings.end(), way.settings.begin(), way.settings.end());
  Settings all = train_arguments(folder, folder / "run", settings);
  all.push_back("--thread-ranks=" + std::to_string(way.ranks));
  const Finished f = run_slimexx(0, all);
  EXPECT_EQ(f.status, 0) << f.text();
  return f.status == 0 ? read_rows(folder / "run/metrics.jsonl") : std::vector<Json>{};
}

// Training computed the log-probs of generation to the bit, and the reference those of the policy.
inline void expect_own_bits(const std::vector<Json>& rows) {
  ASSERT_EQ(rows.size(), 2u);
  for (const Json& row : rows) {
    EXPECT_EQ(number(row, "train/mismatch_tokens"), 0);
    EXPECT_EQ(number(row, "train/compared_tokens"), number(row, "rollout/num_tokens"));
    EXPECT_GT(number(row, "rollout/num_tokens"), 16);
    EXPECT_GT(number(row, "train/grad_norm"), 0);
  }
  EXPECT_EQ(number(rows[0], "train/kl_loss"), 0) << "the reference computes as the policy";
  EXPECT_GT(number(rows[1], "train/kl_loss"), 0);
}

}  // namespace slimexx::e2e
