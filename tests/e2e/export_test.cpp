// Tests the outputs of a run: the exported folder, and the sharded checkpoint converted by
// convert-hf.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "e2e/small_run.h"
#include "e2e/tensor_files.h"

namespace slimexx::e2e {
namespace {

class Export : public testing::TestWithParam<Family> {};

TEST_P(Export, OfARunComesBackFromItsCheckpointByteForByte) {
  const Folder folder;
  make_checkpoint(folder, GetParam().model);
  make_prompts(folder);
  const std::string run_dir = folder / "run";
  Finished f = run_slimexx(0, train_arguments(folder, run_dir,
                                              {"checkpoint.save_interval=3",
                                               "checkpoint.save_hf=" + (folder / "exported")}));
  ASSERT_EQ(f.status, 0) << f.text();
  const std::string exported = read_bytes(folder / "exported/model.safetensors");
  ASSERT_GT(exported.size(), 10000u);
  EXPECT_NE(exported, read_bytes(folder / "model/model.safetensors")) << "nothing was learnt";

  // Training checkpoint -> HF: the masters, cast as in the export.
  f = run_slimexx(0, {"convert-hf", "--to", "hf", "--load", run_dir + "/checkpoints", "--save",
                      folder / "converted", "--verify"});
  ASSERT_EQ(f.status, 0) << f.text();
  EXPECT_TRUE(read_bytes(folder / "converted/model.safetensors") == exported);

  // HF -> sharded -> HF.
  f = run_slimexx(0, {"convert-hf", "--hf-checkpoint", folder / "exported", "--save",
                      folder / "sharded", "--verify"});
  ASSERT_EQ(f.status, 0) << f.text();
  f = run_slimexx(0, {"convert-hf", "--to", "hf", "--load", folder / "sharded", "--save",
                      folder / "back", "--verify"});
  ASSERT_EQ(f.status, 0) << f.text();
  for (const auto& entry : std::filesystem::directory_iterator(folder / "exported")) {
    const std::string name = entry.path().filename();
    EXPECT_TRUE(read_bytes(folder / ("back/" + name)) == read_bytes(entry.path())) << name;
  }
}

TEST_P(Export, IsScoredToTheLogProbsOfTheNextRollout) {
  const Folder folder;
  make_checkpoint(folder, GetParam().model);
  make_prompts(folder);
  // The second rollout is generated with the weights of the first update.
  const auto settings = [&](const std::string& name, int rollouts) {
    return train_arguments(folder, folder / name,
                           {"rollout.num_rollout=" + std::to_string(rollouts),
                            "checkpoint.save_hf=" + (folder / (name + "/hf")),
                            "debug.save_rollout=" + (folder / (name + "/rollouts"))});
  };
  for (const int rollouts : {1, 2}) {
    const Finished f = run_slimexx(0, settings("run" + std::to_string(rollouts), rollouts));
    ASSERT_EQ(f.status, 0) << f.text();
  }
  const std::string dump = folder / "run2/rollouts/rollout_000001.jsonl";
  const Finished f = run_slimexx(0, {"score", "--hf-checkpoint", folder / "run1/hf", "--input",
                                     dump, "--output", folder / "scores.jsonl"});
  ASSERT_EQ(f.status, 0) << f.text();
  const auto samples = read_rows(dump), scores = read_rows(folder / "scores.jsonl");
  ASSERT_EQ(samples.size(), 16u);
  ASSERT_EQ(samples.size(), scores.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    const auto generated = samples[i].at("rollout_log_probs").get<std::vector<float>>();
    const auto all = scores[i].at("logprobs").get<std::vector<float>>();
    EXPECT_EQ(std::vector<float>(all.end() - std::ssize(generated), all.end()), generated)
        << "sample " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Export, testing::ValuesIn(families()),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace slimexx::e2e
