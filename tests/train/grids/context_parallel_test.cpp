// Context-parallel training agrees with training on one rank: log-probs and entropies bit for bit.
#include <gtest/gtest.h>

#include "train/grids/grid_agreement.h"

namespace slimexx::train {
namespace {

const char* const kContextFamilies[] = {"qwen2",         "qwen3",    "qwen3_moe",   "glm4",
                                        "glm4_moe_lite", "glm4_moe", "deepseek_v3", "glm_moe_dsa"};

// `tokens` is the limit per microbatch over all cp ranks together.
GridRun context_run(const std::string& family, int world_size, int cp, int64_t tokens = 48) {
  return {.folder = test_data_path("golden/oracle/") + family,
          .world_size = world_size,
          .sizes = {.cp = cp},
          .options = packed(tokens / cp),
          .num_steps = 2};
}

TEST(ContextParallel, RanksTrainEveryFamilyAsOne) {
  const std::vector<Sample> samples = mixed_samples(7, 11, 320);
  for (const std::string family : kContextFamilies) {
    SCOPED_TRACE(family);
    const GridResult one = run_on_grid(context_run(family, 1, 1), samples);
    for (const int cp : {2, 3, 4}) {
      SCOPED_TRACE(cp);
      expect_same_training(run_on_grid(context_run(family, cp, cp), samples), one);
    }
  }
}

// Sequences with several key blocks, chunk borders inside a block, and more keys than sparse
// attention selects.
TEST(ContextParallel, LongSequencesHaveTheBitsOfOneRank) {
  const std::vector<Sample> samples = samples_of_lengths({300, 131, 64, 257}, 17);
  for (const std::string family : {"qwen3", "glm4", "deepseek_v3", "glm_moe_dsa"}) {
    SCOPED_TRACE(family);
    const GridResult one = run_on_grid(context_run(family, 1, 1, 456), samples);
    for (const int cp : {2, 3, 4}) {
      SCOPED_TRACE(cp);
      expect_same_training(run_on_grid(context_run(family, cp, cp, 456), samples), one);
    }
  }
}

// Covers empty chunks, ranks without rows, and a microbatch that is empty on all ranks.
TEST(ContextParallel, SequencesMayBeShorterThanTheNumberOfChunks) {
  const std::vector<Sample> samples = samples_of_lengths({2, 3, 5, 2, 7, 4}, 1);
  for (const std::string family : {"qwen3", "glm4_moe_lite", "glm_moe_dsa"}) {
    SCOPED_TRACE(family);
    for (const int64_t tokens : {4, 12, 48}) {
      SCOPED_TRACE(tokens);
      const GridResult one = run_on_grid(context_run(family, 1, 1, tokens), samples);
      for (const int cp : {2, 4})
        expect_same_training(run_on_grid(context_run(family, cp, cp, tokens), samples), one);
    }
  }
}

TEST(ContextParallel, BesideDataParallelRanks) {
  const std::vector<Sample> samples = mixed_samples(9, 5, 320);
  for (const std::string family : {"qwen3", "glm4_moe", "glm_moe_dsa"}) {
    SCOPED_TRACE(family);
    const GridResult one = run_on_grid(context_run(family, 1, 1), samples);
    expect_same_training(run_on_grid(context_run(family, 4, 2), samples), one);
    expect_same_training(run_on_grid(context_run(family, 6, 3), samples), one);
  }
}

// The tp ranks of a cp rank split its rows, of which there may be fewer than ranks.
TEST(ContextParallel, BesideTensorParallelRanks) {
  const std::vector<Sample> samples = mixed_samples(7, 11, 320);
  for (const std::string family : {"qwen3", "glm4_moe_lite", "glm_moe_dsa"}) {
    SCOPED_TRACE(family);
    for (const int64_t tokens : {4, 48}) {
      GridRun one = context_run(family, 1, 1, tokens);
      one.leaves = 2;
      GridRun many = context_run(family, 4, 2, tokens);
      many.sizes.tp = 2;
      expect_same_training(run_on_grid(many, samples), run_on_grid(one, samples));
    }
  }
}

// The plan covers microbatches of one row, which tp ranks split. (Query and key gradients for so
// few tokens are mostly rounding, which depends on how weights are split: both runs have two tp
// ranks.)
TEST(ContextParallel, OneRowOfTensorParallelRanksFitsItsPlan) {
  const std::vector<Sample> samples = samples_of_lengths({3, 2, 3}, 1);
  for (const std::string family : {"qwen3", "glm4_moe", "glm_moe_dsa"}) {
    SCOPED_TRACE(family);
    const auto run = [&](int cp) {
      GridRun own = context_run(family, 2 * cp, cp, 3);
      own.sizes.tp = 2;
      return run_on_grid(own, samples);
    };
    const GridResult one = run(1);
    for (const int cp : {2, 3}) expect_same_training(run(cp), one);
  }
}

TEST(ContextParallel, BesidePipelineStages) {
  const std::vector<Sample> samples = mixed_samples(7, 11, 320);
  for (const std::string family : {"qwen3", "glm4_moe_lite"}) {
    SCOPED_TRACE(family);
    GridRun many = context_run(family, 4, 2);
    many.sizes.pp = 2;
    expect_same_training(run_on_grid(many, samples),
                         run_on_grid(context_run(family, 1, 1), samples));
  }
}

// Per-sample ratios and means cover the tokens on all cp ranks.
TEST(ContextParallel, LossesOfWholeSequences) {
  const std::vector<Sample> samples = mixed_samples(7, 11, 320);
  StepLoss gspo = full_loss();
  gspo.policy.kind = ops::LossKind::kGspo;
  StepLoss per_token = gspo;
  per_token.per_token_loss = true;
  StepLoss sft;
  sft.policy.kind = ops::LossKind::kSft;
  StepLoss masked = full_loss();
  masked.policy.use_opsm = true;
  masked.policy.opsm_delta = 0;
  for (const StepLoss& loss : {gspo, per_token, sft, masked}) {
    const GridResult one = run_on_grid(context_run("qwen3", 1, 1), samples, loss);
    EXPECT_EQ(one.steps[0].metric(ops::LossMetric::kOpsmClipFraction) > 0, loss.policy.use_opsm);
    for (const int cp : {2, 3})
      expect_same_training(run_on_grid(context_run("qwen3", cp, cp), samples, loss), one);
  }
}

TEST(ContextParallel, RecomputedLayersTrainAlike) {
  const std::vector<Sample> samples = mixed_samples(7, 11, 320);
  for (const std::string family : {"glm4", "glm_moe_dsa"}) {
    SCOPED_TRACE(family);
    const GridResult one = run_on_grid(context_run(family, 1, 1), samples);
    GridRun run = context_run(family, 2, 2);
    run.options.recompute_granularity = "full";
    expect_same_training(run_on_grid(run, samples), one);
  }
}

// An MTP label may be the first token of another rank's chunk.
TEST(ContextParallel, MtpLayersTrainAlike) {
  const std::vector<Sample> samples = mixed_samples(7, 11, 320);
  for (const std::string family : {"glm4_moe", "glm4_moe_lite", "deepseek_v3", "glm_moe_dsa"}) {
    SCOPED_TRACE(family);
    const auto run = [&](int world_size, int cp) {
      GridRun own = context_run(family, world_size, cp);
      own.options.mtp_num_layers = 1;
      own.options.enable_mtp_training = true;
      return run_on_grid(own, samples);
    };
    const GridResult one = run(1, 1);
    for (const int cp : {2, 3}) expect_same_training(run(cp, cp), one);
    expect_same_training(run(4, 2), one);
  }
}

// Lengths for which the first rank gets one more row per sequence than the others.
TEST(ContextParallel, MicrobatchesFitTheirPlan) {
  const std::vector<Sample> samples = samples_of_lengths({5, 5, 5, 5, 9, 5, 5, 13, 5, 17, 5}, 1);
  for (const std::string family : {"qwen3", "glm_moe_dsa"}) {
    SCOPED_TRACE(family);
    const GridRun run = context_run(family, 2, 2, 20);
    const GridResult one = run_on_grid(context_run(family, 1, 1, 20), samples);
    for (const std::string recompute : {"none", "full", "auto"}) {
      SCOPED_TRACE(recompute);
      dist::run_thread_ranks(2, [&](dist::Collective& host) {
        const io::HfFolder folder = io::HfFolder::open(run.folder);
        model::ModelSpec spec = model::read_model_spec(folder.config(), "config.json");
        model::drop_missing_mtp(spec, folder);
        model::ParameterStore store(spec, {}, true);
        model::load_hf_weights(store, spec, folder);
        const dist::ProcessGrid grid(host, run.sizes, {});
        const model::Decoder decoder(spec, {}, 64, model::whole_model(spec), run.sizes);
        TrainOptions options = run.options;
        options.recompute_granularity = recompute;
        Trainer trainer(decoder, store, host, grid.groups(), options, {}, 0.9f, {}, 1);
        const int64_t bytes = trainer.plans().plan_activations(17, std::ssize(samples)).least;
        const tensor::Buffer memory({}, bytes, "test");
        trainer.memory().borrow(memory.view(tensor::DType::kU8, {bytes}));
        const StepResult step = trainer.step(samples, full_loss(), 1e-3);
        EXPECT_NEAR(step.gradient_norm, one.steps[0].gradient_norm, 1e-6 * step.gradient_norm);
      });
    }
  }
}

}  // namespace
}  // namespace slimexx::train
