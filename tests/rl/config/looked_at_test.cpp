#include "rl/config/looked_at.h"

#include <gtest/gtest.h>

#include <set>

#include "slimexx/base/error.h"

namespace slimexx::rl {
namespace {

constexpr const char* kBase = R"(
model: {hf_checkpoint: model}
data: {prompt_data: prompts.jsonl}
rollout: {num_rollout: 2, n_samples_per_prompt: 2}
reward: {rm_type: math}
)";

RunConfig load(const std::string& yaml, const std::vector<config::Override>& overrides) {
  config::Config config = config::Config::parse(yaml, "run.yaml", overrides);
  return load_run_config(config, {.default_run_dir = "runs/x"});
}

std::set<std::string> named(const RunConfig& run) {
  std::set<std::string> keys;
  for (const config::TakenKey& key : run.taken_keys) keys.insert(key.path);
  return keys;
}

std::string fault_of(const std::string& yaml, const std::vector<config::Override>& overrides) {
  try {
    load(yaml, overrides);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(LookedAt, EveryConditionIsKnown) {
  RunConfig run;
  config::FieldLister lister;
  bind(lister, run);
  size_t num_conditional = 0;
  for (const config::FieldInfo& field : lister.fields()) {
    if (field.meta.when.empty()) continue;
    ++num_conditional;
    EXPECT_TRUE(is_condition(field.meta.when)) << field.path << ": " << field.meta.when;
  }
  EXPECT_GT(num_conditional, 90u);
  EXPECT_FALSE(is_condition("never"));
}

// Keys in the file that a command-line override turns off are listed; the resolved file has their
// defaults, so that it can be read again.
TEST(LookedAt, KeysBelowAreNamed) {
  const std::string yaml = std::string(kBase) + "rl: {entropy_coef: 0.5, eps_clip: 0.3}\n";
  const RunConfig run = load(yaml, {{"train.loss_type", "sft"}});
  EXPECT_EQ(named(run), (std::set<std::string>{"rl.entropy_coef", "rl.eps_clip",
                                               "rollout.n_samples_per_prompt", "reward.rm_type"}));
  const RunConfig again = load(run.resolved_yaml, {});
  EXPECT_EQ(again.resolved_yaml, run.resolved_yaml);
  EXPECT_EQ(again.rl.entropy_coef, 0);
  EXPECT_EQ(named(again), std::set<std::string>{"reward.rm_type"});
}

TEST(LookedAt, KeysBesideAndAboveAreRefused) {
  const std::string beside = fault_of(std::string(kBase) + "train: {loss_type: sft}\n", {});
  EXPECT_NE(beside.find("rollout.n_samples_per_prompt: is set, and train.loss_type is sft"),
            std::string::npos)
      << beside;
  const std::string above = fault_of(kBase, {{"rl.tis_clip", "3"}});
  EXPECT_NE(above.find("rl.tis_clip: is set, and rl.use_tis is false"), std::string::npos) << above;
  EXPECT_EQ(fault_of(kBase, {{"rl.tis_clip", "3"}, {"rl.use_tis", "true"}}), "");
  EXPECT_EQ(fault_of(std::string(kBase) + "rl: {use_tis: true, tis_clip: 3}\n",
                     {{"rl.use_tis", "false"}}),
            "");
}

TEST(LookedAt, DefaultsAreHarmless) {
  EXPECT_TRUE(
      named(load(kBase, {{"rl.gamma", "1.0"}, {"rl.tis_clip", "2"}, {"optimizer.min_lr", "0"}}))
          .empty());
}

TEST(LookedAt, WhatRecipesOfSlimeSetIsNamed) {
  const RunConfig run = load(
      kBase, {{"model.ref_load", "m"}, {"rl.kl_loss_type", "low_var_kl"}, {"rl.kl_coef", "0"}});
  EXPECT_EQ(named(run), (std::set<std::string>{"model.ref_load", "rl.kl_loss_type"}));
}

}  // namespace
}  // namespace slimexx::rl
