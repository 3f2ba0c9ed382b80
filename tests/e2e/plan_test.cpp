// Compares `slimexx plan` with the tables that runs print when they are built.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <ostream>

#include "e2e/fp8/ways.h"
#include "e2e/small_run.h"
#include "slimexx/base/strings.h"

namespace slimexx::e2e {
namespace {

std::vector<std::string> plan_arguments(const std::vector<std::string>& train, int num_ranks) {
  std::vector<std::string> words = train;
  words[0] = "plan";
  words.insert(words.begin() + 1, {"--gpu", "cpu", "--gpus", std::to_string(num_ranks), "--json"});
  return words;
}

// The lines of the memory table of a dry run, up to the line with the run's folder.
std::string memory_lines(const std::string& text) {
  const size_t begin = text.find("  memory    of"), end = text.find("  run       ", begin);
  if (begin == std::string::npos || end == std::string::npos) return "no table in\n" + text;
  return text.substr(text.find('\n', begin) + 1, end - text.find('\n', begin) - 1);
}

std::string line(double bytes, const std::string& what) {
  std::string text = format_bytes(bytes);
  text.insert(0, 14 - text.size(), ' ');
  return text + "  " + what + "\n";
}

// The lines of the memory table that a run should print according to the plan.
std::string planned_lines(const Json& plan) {
  const Json& stage = plan.at("stages").at(0);
  std::string text;
  for (const auto& [name, bytes] : stage.at("memory").items())
    text += line(bytes.get<double>(), name);
  text += line(stage.at("activations_most").get<double>(),
               "activations of the largest microbatch, at most");
  if (const double bytes = stage.at("host_optimizer_state").get<double>(); bytes > 0)
    text += line(bytes, "host memory: optimizer state");
  if (const double bytes = stage.at("host_reference").get<double>(); bytes > 0)
    text += line(bytes, "host memory: reference");
  if (const double bytes = stage.at("checkpoint_copy").get<double>(); bytes > 0)
    text += line(bytes, "host memory while writing a checkpoint: a copy of the state");
  if (plan.at("generator").is_null()) return text;
  text += "  memory    of one generating rank\n";
  for (const auto& [name, bytes] : plan.at("generator").at("memory").items())
    text += line(bytes.get<double>(), name);
  return text;
}

struct PlanCase {
  const char* name;
  const char* model;
  int num_ranks;
  std::vector<std::string> settings;
  bool evaluates = false;
  const char* changes = "{}";
};

void PrintTo(const PlanCase& c, std::ostream* out) { *out << c.name; }

class PlanOfARun : public testing::TestWithParam<PlanCase> {};

// The run counts its real allocations; the plan allocates nothing.
TEST_P(PlanOfARun, HasTheTableThatItPrints) {
  const PlanCase& c = GetParam();
  if (c.num_ranks > 1 && !why_no_ranks().empty()) GTEST_SKIP() << why_no_ranks();
  const Folder folder;
  make_checkpoint(folder, c.model, c.changes);
  make_prompts(folder);
  std::vector<std::string> settings = c.settings;
  if (c.evaluates)
    settings.push_back("eval.eval_prompt_data={held: " + (folder / "prompts.jsonl") + "}");
  std::vector<std::string> arguments = train_arguments(folder, folder / "run", settings);
  const Finished planned = run_slimexx(0, plan_arguments(arguments, c.num_ranks));
  ASSERT_EQ(planned.status, 0) << planned.text();
  arguments.push_back("--dry-run");
  const Finished run = run_slimexx(c.num_ranks > 1 ? c.num_ranks : 0, arguments);
  ASSERT_EQ(run.status, 0) << run.text();
  EXPECT_EQ(planned_lines(Json::parse(planned.out)), memory_lines(run.out + run.err));
}

// The rows of the prompt file, used as supervised examples.
const std::vector<std::string> kSft = {"train.loss_type=sft", "data.response_key=label",
                                       "rollout.n_samples_per_prompt=1"};

const std::vector<std::string> kFp8OfEngines = {
    "numerics.fp8=rollout_only", "numerics.on_logprob_mismatch=ignore", "rl.use_tis=true"};

const PlanCase kCases[] = {
    {"dense", "models/qwen3_tied_mqa", 1, {}},
    {"sandwich_norms", "models/glm4_no_bias", 1, {}},
    {"moments_in_bf16", "models/llama", 1, {"optimizer.state_dtype=bfloat16"}},
    {"optimizer_on_host", "models/llama", 1, {"optimizer.optimizer_cpu_offload=true"}},
    {"fp8", "models/qwen3_tied_mqa", 1, {"numerics.fp8=on"}, false, kDense},
    {"fp8_of_engines", "models/qwen3_tied_mqa", 1, kFp8OfEngines, false, kDense},
    {"sft", "models/llama", 1, kSft},
    {"sft_and_evaluation", "models/llama", 1, kSft, true},
    {"experts", "oracle/glm4_moe", 1, {}},
    {"sparse_attention", "oracle/glm_moe_dsa", 1, {}},
    {"data_parallel", "models/qwen2_untied", 2, {}},
    {"tensor_parallel", "models/llama", 2, {"parallel.tensor_model_parallel_size=2"}},
    {"context_parallel", "models/llama", 2, {"parallel.context_parallel_size=2"}},
    {"expert_parallel", "oracle/qwen3_moe", 2, {"parallel.expert_model_parallel_size=2"}},
    {"columns_of_experts", "oracle/glm4_moe", 2, {"parallel.tensor_model_parallel_size=2"}},
    {"engine_of_experts",
     "oracle/qwen3_moe",
     2,
     {"rollout.rollout_num_gpus_per_engine=2", "rollout.dp_size=2",
      "rollout.enable_dp_attention=true", "rollout.ep_size=2"}},
    {"engine_of_redundant_experts",
     "oracle/qwen3_moe",
     3,
     {"rollout.rollout_num_gpus_per_engine=3", "rollout.dp_size=3",
      "rollout.enable_dp_attention=true", "rollout.ep_size=3",
      "rollout.ep_num_redundant_experts=2"}},
    {"fp8_of_engine_shards",
     "models/qwen3_tied_mqa",
     2,
     {"numerics.fp8=rollout_only", "numerics.on_logprob_mismatch=ignore", "rl.use_tis=true",
      "rollout.rollout_num_gpus_per_engine=2"},
     false,
     kDense},
    {"engine_of_shards", "models/llama", 2, {"rollout.rollout_num_gpus_per_engine=2"}},
    {"engine_of_whole_mlps",
     "oracle/glm4_moe",
     2,
     {"parallel.tensor_model_parallel_size=2", "parallel.expert_model_parallel_size=2",
      "parallel.expert_tensor_parallel_size=1", "rollout.rollout_num_gpus_per_engine=2",
      "rollout.ep_size=2", "rollout.moe_dense_tp_size=1"}},
    {"tied_pipeline", "models/qwen3_tied_mqa", 2, {"parallel.pipeline_model_parallel_size=2"}},
    {"apart",
     "models/llama",
     2,
     {"parallel.colocate=false", "parallel.actor_num_gpus=1", "parallel.rollout_num_gpus=1"}},
    {"apart_shards",
     "models/llama",
     4,
     {"parallel.colocate=false", "parallel.actor_num_gpus=2", "parallel.rollout_num_gpus=2",
      "parallel.context_parallel_size=2", "rollout.rollout_num_gpus_per_engine=2"}}};
// Prompts of one, two and two tokens have the mean 1.67.
TEST(PlanOfPrompts, MeansAreTheNearestWholeNumbers) {
  const Folder folder;
  make_checkpoint(folder, "models/llama");
  std::string rows;
  for (const char* prompt : {"x", "xy", "yx"})
    rows += Json{{"prompt", prompt}, {"label", "6"}}.dump() + "\n";
  folder.put("prompts.jsonl", rows);
  const Finished planned =
      run_slimexx(0, plan_arguments(train_arguments(folder, folder / "run", {}), 1));
  ASSERT_EQ(planned.status, 0) << planned.text();
  EXPECT_EQ(Json::parse(planned.out).at("lengths").at("mean_prompt"), 2);
}

INSTANTIATE_TEST_SUITE_P(Runs, PlanOfARun, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace slimexx::e2e
