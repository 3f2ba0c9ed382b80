// Tests GRPO runs with speculative decoding: samples and weights are byte-identical to those of a
// run without it, even if the MTP layer is trained, split over ranks and handed over.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "e2e/small_run.h"
#include "e2e/tensor_files.h"

namespace slimexx::e2e {
namespace {

using Settings = std::vector<std::string>;

struct Guessing {
  std::string name;
  int ranks = 1;
  Settings layout;
};
void PrintTo(const Guessing& guessing, std::ostream* out) { *out << guessing.name; }

class SpeculativeRun : public testing::TestWithParam<Guessing> {
 protected:
  void SetUp() override {
    make_checkpoint(folder_, "oracle/glm4_moe");
    make_prompts(folder_);
  }
  Json run(const std::string& name, const Settings& settings) const {
    Settings all = {
        "train.enable_mtp_training=true", "train.mtp_num_layers=1",
        "rollout.num_rollout=2",          "rollout.speculative_gate=false",
        "debug.check_weight_hash=true",   "checkpoint.save_hf=" + (folder_ / (name + "/hf"))};
    all.insert(all.end(), GetParam().layout.begin(), GetParam().layout.end());
    all.insert(all.end(), settings.begin(), settings.end());
    all = train_arguments(folder_, folder_ / name, all);
    all.push_back("--thread-ranks=" + std::to_string(GetParam().ranks));
    const Finished f = run_slimexx(0, all);
    EXPECT_EQ(f.status, 0) << f.text();
    return read_rows(folder_ / (name + "/metrics.jsonl")).back();
  }
  Tensors weights(const std::string& name) const {
    return read_tensors(folder_ / (name + "/hf/model.safetensors"));
  }
  const Folder folder_;
};

TEST_P(SpeculativeRun, LearnsTheSameToTheByte) {
  const Json plain = run("plain", {});
  EXPECT_FALSE(plain.contains("rollout/spec_accept_rate"));
  const Tensors expected = weights("plain");
  const std::vector<std::pair<std::string, Settings>> ways = {
      {"eagle",
       {"rollout.speculative_algorithm=EAGLE", "rollout.speculative_num_steps=3",
        "rollout.speculative_eagle_topk=1", "rollout.speculative_num_draft_tokens=4"}},
      {"nextn", {"rollout.speculative_algorithm=NEXTN", "rollout.speculative_num_steps=1"}},
      {"gated", {"rollout.speculative_algorithm=EAGLE", "rollout.speculative_gate=true"}},
      {"ngram", {"rollout.speculative_algorithm=NGRAM"}}};
  for (const auto& [name, settings] : ways) {
    const Json row = run(name, settings);
    for (const char* key : {"rollout/response_len/mean", "train/loss", "train/mtp_loss"})
      EXPECT_EQ(number(row, key), number(plain, key)) << name << " " << key;
    if (name == "eagle" || name == "nextn") {
      EXPECT_GE(number(row, "rollout/spec_accept_rate"), 0) << name;
      EXPECT_GE(number(row, "rollout/spec_accept_length"), 1) << name;
    }
    const Tensors found = weights(name);
    ASSERT_EQ(found.size(), expected.size()) << name;
    for (const auto& [tensor, values] : expected)
      EXPECT_EQ(found.at(tensor).data, values.data) << name << " " << tensor;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, SpeculativeRun,
    testing::Values(
        Guessing{"one_rank", 1, {}},
        Guessing{"experts_of_two",
                 2,
                 {"parallel.expert_model_parallel_size=2", "rollout.rollout_num_gpus_per_engine=2",
                  "rollout.enable_dp_attention=true", "rollout.dp_size=2", "rollout.ep_size=2"}},
        Guessing{"apart",
                 3,
                 {"parallel.colocate=false", "parallel.actor_num_gpus=2",
                  "parallel.rollout_num_gpus=1", "parallel.pipeline_model_parallel_size=2"}}),
    [](const auto& instance) { return instance.param.name; });

// Exports by Hugging Face's libraries lack the MTP layer.
TEST(SpeculativeRunOfAModelWithoutALayer, IsRefused) {
  const Folder folder;
  make_checkpoint(folder, "models/llama");
  make_prompts(folder);
  expect_refused(folder, 1, {"rollout.speculative_algorithm=EAGLE"},
                 {"rollout.speculative_algorithm is EAGLE, but ",
                  "has no multi-token prediction layer", "use NGRAM"});
}

}  // namespace
}  // namespace slimexx::e2e
