#include "rl/assembly/frozen_model.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "io/temp_dir.h"
#include "rl/training/stages.h"
#include "rl/training/training_run.h"
#include "slimexx/base/error.h"
#include "slimexx/dist/thread_ranks.h"
#include "slimexx/rl/plan.h"
#include "test_paths.h"

namespace slimexx::rl {
namespace {

std::string model_folder(const std::string& name) {
  return test_data_path("golden/oracle/" + name);
}

std::vector<Sample> make_samples(int64_t vocab_size) {
  std::vector<Sample> samples;
  for (int64_t s = 0; s < 4; ++s) {
    Sample& sample = samples.emplace_back();
    sample.group = s / 2;
    sample.sample = s % 2;
    for (int64_t t = 0; t < 9 + 5 * s; ++t)
      sample.tokens.push_back(static_cast<int32_t>((7 + 13 * t + 31 * s) % vocab_size));
    sample.response_length = 4 + s;
  }
  return samples;
}

// A policy, a reference and a second frozen model.
class ThreeModels : public testing::Test {
 protected:
  RunConfig load(const std::vector<config::Override>& overrides = {}) const {
    config::Config config = config::Config::parse(
        "model: {hf_checkpoint: " + model_folder("qwen3") + ", ref_load: " + model_folder("qwen2") +
            "}\n"
            "debug: {load_rollout: " +
            dump_ +
            "}\n"
            "train: {global_batch_size: 4, max_tokens_per_gpu: 64}\n"
            "rl: {use_kl_loss: true, kl_loss_coef: 0.1}\n"
            "observe: {tensorboard: false}\n",
        "run.yaml", overrides);
    return load_run_config(config, {.default_run_dir = folder_.file("run")});
  }

  io::TempDir folder_;
  std::string dump_ = folder_.put(
      "dump.jsonl",
      R"({"group": 0, "sample": 0, "tokens": [5, 6, 7, 8], "response_length": 2, "reward": 1, "status": "completed"})"
      "\n");
};

TEST_F(ThreeModels, ARowIsAllThatARunNeedsToScoreByOneMore) {
  RunConfig config = load();
  ASSERT_EQ(config.frozen_models.size(), 1u);
  EXPECT_EQ(config.frozen_models[0].name, kReference);
  config.frozen_models.push_back({.name = "teacher", .folder = model_folder("glm4")});
  dist::run_thread_ranks(1, [&](dist::Collective& ranks) {
    dist::World world(std::move(ranks));
    TrainingRun run({.config = config,
                     .start = {},
                     .locks = {},
                     .start_command = "",
                     .resume_command = "",
                     .device = {},
                     .dry_run = true},
                    world);
    ASSERT_EQ(run.trainer_side.frozen.size(), 2u);
    const auto samples = make_samples(run.trainer_side.policy.spec.vocab_size);
    for (const auto& [name, family] : {std::pair{"reference", "qwen2"}, {"teacher", "glm4"}}) {
      FrozenModel* frozen = find_frozen(run.trainer_side.frozen, name);
      ASSERT_NE(frozen, nullptr) << name;
      const auto scores = score_frozen(run.session, run.trainer_side, *frozen, samples);
      // The same model, loaded alone.
      const LoadedModel alone = load_model(model_folder(family), {}, false);
      const model::Decoder decoder(alone.spec, {}, alone.spec.max_positions);
      train::Scorer scorer(train::StageDecoders(decoder), *alone.store, 1.0f, {});
      const auto expected = scorer.score(samples);
      ASSERT_EQ(scores.size(), expected.size());
      for (size_t i = 0; i < scores.size(); ++i)
        EXPECT_EQ(scores[i].log_probs, expected[i].log_probs) << name << ", sample " << i;
    }
    EXPECT_NE(describe_checks(run).find("teacher"), std::string::npos);
  });
}

TEST_F(ThreeModels, APlanCountsOneMore) {
  const std::string folder = test_data_path("../configs/models/Qwen3-4B");
  PlanRequest request{.config = load({{"model.hf_checkpoint", folder}, {"model.ref_load", folder}}),
                      .num_ranks = 1,
                      .gpu = find_gpu_kind("h200")};
  const RunPlan two = make_plan(request);
  request.config.frozen_models.push_back({.name = "teacher", .folder = folder});
  const RunPlan three = make_plan(request);
  // On a GPU both frozen models are in host memory; each in turn is copied to the gradients'
  // memory.
  EXPECT_GT(two.stages[0].reference_bytes, 0);
  EXPECT_EQ(three.stages[0].reference_bytes, 2 * two.stages[0].reference_bytes);
  const int64_t rotary_bytes = two.spec.max_positions * 128 * 4;  // its decoder's own rotary table
  EXPECT_EQ(three.stages[0].used_bytes, two.stages[0].used_bytes + rotary_bytes);
}

TEST_F(ThreeModels, AnotherVocabularyIsRefusedByName) {
  RunConfig config = load();
  config.frozen_models[0].folder = test_data_path("golden/models/llama");
  config.frozen_models[0].name = "teacher";
  dist::run_thread_ranks(1, [&](dist::Collective& ranks) {
    dist::World world(std::move(ranks));
    try {
      TrainingRun run({.config = config,
                       .start = {},
                       .locks = {},
                       .start_command = "",
                       .resume_command = "",
                       .device = {},
                       .dry_run = true},
                      world);
      FAIL() << "a teacher of another vocabulary is taken";
    } catch (const Error& error) {
      EXPECT_NE(error.message().find("the teacher has"), std::string::npos) << error.what();
    }
  });
}

}  // namespace
}  // namespace slimexx::rl
