#include "rl/training/run_summary.h"

#include <gtest/gtest.h>

namespace slimexx::rl {
namespace {

TEST(RunSummary, TheBatchEquation) {
  RunConfig run;
  run.rollout.rollout_batch_size = 32;
  run.rollout.n_samples_per_prompt = 8;
  run.global_batch_size = 64;
  run.num_steps_per_rollout = 4;
  EXPECT_EQ(describe_batch(run),
            "rollout_batch_size 32 * n_samples_per_prompt 8 = global_batch_size 64 * "
            "num_steps_per_rollout 4");
  run.debug.load_rollout = "dump";
  EXPECT_EQ(describe_batch(run), "global_batch_size 64 * num_steps_per_rollout 4");
  run.global_batch_size = 0;
  EXPECT_EQ(describe_batch(run), "a dump split into 4 optimizer steps");
  run.global_batch_size = 64;
  run.num_steps_per_rollout = 0;
  EXPECT_EQ(describe_batch(run), "steps of global_batch_size 64 from a dump");
  run.train.loss_type = "sft";
  run.global_batch_size = 128;
  EXPECT_EQ(describe_batch(run), "128 conversations per optimizer step");
}

TEST(RunSummary, WhatIsSaved) {
  RunConfig run;
  EXPECT_EQ(describe_saves(run, "ck"), "the final state, to ck");
  run.checkpoint.save_interval = 20;
  EXPECT_EQ(describe_saves(run, ""), "every 20 rollouts, and the final state");
  run.checkpoint.save_interval = 1;
  EXPECT_EQ(describe_saves(run, "ck"), "every 1 rollout, and the final state, to ck");
  run.checkpoint.save_interval = 0;
  EXPECT_TRUE(describe_saves(run, "ck").starts_with("nothing at the end of the run"));
}

TEST(RunSummary, TheKeyThatMakesARunLonger) {
  RunConfig run;
  run.rollout.num_epoch = 2;
  EXPECT_STREQ(name_length_key(run), "rollout.num_epoch");
  run.rollout.num_rollout = 2;
  EXPECT_STREQ(name_length_key(run), "rollout.num_rollout");
  RunConfig sft;
  sft.train.loss_type = "sft";
  EXPECT_STREQ(name_length_key(sft), "train.num_sft_epochs");
}

TEST(RunSummary, KeysWithoutEffectAreNamed) {
  RunConfig run;
  EXPECT_TRUE(describe_taken_keys(run).empty());
  run.taken_keys.push_back({"train.hidden_dropout", "there is no dropout"});
  ASSERT_EQ(describe_taken_keys(run).size(), 1u);
  EXPECT_EQ(describe_taken_keys(run)[0], "train.hidden_dropout has no effect: there is no dropout");
}

TEST(RunSummary, TruncatedSamplingIsNamedWhereItIs) {
  RunConfig run;
  EXPECT_EQ(describe_truncated_sampling(run), "");
  run.rollout.rollout_top_p = 0.9;
  run.rollout.rollout_top_k = 20;
  run.rollout.rollout_min_p = 0.05;
  EXPECT_TRUE(describe_truncated_sampling(run).starts_with(
      "rollout_top_p 0.9, rollout_top_k 20, rollout_min_p 0.05: samples come from a truncated"));
  run.debug.load_rollout = "dump";
  EXPECT_EQ(describe_truncated_sampling(run), "");
}

}  // namespace
}  // namespace slimexx::rl
