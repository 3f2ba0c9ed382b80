#include "slimexx/rl/run_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "slimexx/base/error.h"
#include "slimexx/base/json.h"
#include "test_paths.h"

namespace slimexx::rl {
namespace {

// Keys that every run needs; the keys of a case are added.
constexpr const char* kMinimal = R"(
model: {hf_checkpoint: model}
data: {prompt_data: prompts.jsonl}
rollout: {num_rollout: 2}
reward: {rm_type: math}
)";

RunConfig load(const Json& c) {
  const std::string yaml = c.value("bare", false) ? "" : kMinimal;
  std::vector<config::Override> overrides;
  for (const auto& [key, value] : c["set"].items()) {
    overrides.push_back({key, value.is_string() ? value.get<std::string>() : value.dump()});
  }
  config::Config config = config::Config::parse(yaml, "run.yaml", overrides);
  return load_run_config(config, {.needs_training = c.value("training", true),
                                  .num_ranks = c.value("ranks", int64_t{0}),
                                  .default_run_dir = c.value("default_run_dir", "")});
}

std::vector<Json> read_cases() {
  std::ifstream file(test_data_path("rl/config/run_config_test.jsonl"));
  std::vector<Json> cases;
  for (std::string line; std::getline(file, line);)
    cases.push_back(parse_json(line, "run_config_test.jsonl"));
  return cases;
}

void expect_derived(const Json& expected, const RunConfig& run) {
  EXPECT_EQ(run.global_batch_size, expected["global_batch_size"].get<int64_t>());
  EXPECT_EQ(run.num_steps_per_rollout, expected["num_steps_per_rollout"].get<int64_t>());
  if (expected.contains("num_rollout")) {
    EXPECT_EQ(run.rollout.num_rollout.value_or(0), expected["num_rollout"].get<int64_t>());
  }
  if (expected.contains("fp8")) {
    EXPECT_EQ(run.numerics.fp8, expected["fp8"].get<std::string>());
  }
  if (expected.contains("num_taken")) {
    EXPECT_EQ(run.taken_keys.size(), expected["num_taken"].get<size_t>());
  }
  if (expected.contains("run_dir")) {
    EXPECT_EQ(run.observe.run_dir, expected["run_dir"].get<std::string>());
  }
  if (expected.contains("eps_clip_high")) {
    EXPECT_EQ(run.rl.eps_clip_high, expected["eps_clip_high"].get<double>());
  }
}

// A case expects derived values or faults: each text of "has" in one fault, each of "hasnt" in
// none.
TEST(RunConfig, Cases) {
  const std::vector<Json> cases = read_cases();
  EXPECT_GT(cases.size(), 40u);
  for (const Json& c : cases) {
    SCOPED_TRACE(c["name"].get<std::string>());
    try {
      const RunConfig run = load(c);
      if (!c.contains("expect")) {
        ADD_FAILURE() << "accepted";
        continue;
      }
      expect_derived(c["expect"], run);
    } catch (const Error& e) {
      const std::string text = e.what();
      if (!c.contains("has")) {
        ADD_FAILURE() << text;
        continue;
      }
      EXPECT_EQ(e.code(), ErrorCode::kUsage);
      for (const auto& part : c["has"])
        EXPECT_NE(text.find(part.get<std::string>()), std::string::npos) << text;
      if (!c.contains("hasnt")) continue;
      for (const auto& part : c["hasnt"])
        EXPECT_EQ(text.find(part.get<std::string>()), std::string::npos) << text;
    }
  }
}

TEST(RunConfig, FaultsNameTheirPlace) {
  config::Config config = config::Config::parse(
      "model: {hf_checkpoint: model}\ndata: {prompt_data: p}\nrollout:\n  num_rollout: 1\n"
      "  partial_rollout: true\nreward: {rm_type: math}\n",
      "run.yaml", {});
  try {
    load_run_config(config, {});
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("run.yaml:5:"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("planned: partial rollouts"), std::string::npos);
  }
}

TEST(RunConfig, TheDefaultRunFolderMayChangeAfterLoading) {
  config::Config config =
      config::Config::parse(kMinimal, "run.yaml", {{"rollout.n_samples_per_prompt", "2"}});
  RunConfig run = load_run_config(config, {.default_run_dir = "runs/a"});
  set_default_run_dir(config, "runs/a-2", run);
  EXPECT_EQ(run.observe.run_dir, "runs/a-2");
  EXPECT_NE(run.resolved_yaml.find("run_dir: runs/a-2\n"), std::string::npos);
  EXPECT_THROW(set_default_run_dir(config, "model", run), Error);

  config::Config named = config::Config::parse(
      kMinimal, "run.yaml", {{"observe.run_dir", "mine"}, {"rollout.n_samples_per_prompt", "2"}});
  run = load_run_config(named, {.default_run_dir = "runs/a"});
  set_default_run_dir(named, "runs/a-2", run);
  EXPECT_NE(run.expanded_yaml.find("run_dir: mine\n"), std::string::npos);
}

// One list of faults in the order of the file, whether found by reading, binding or checking.
TEST(RunConfig, FaultsStandInTheOrderOfTheFile) {
  config::Config config = config::Config::parse(
      "model: {hf_checkpoint: model}\ndata: {prompt_data: p}\n"
      "rl: {kl_coef: 0.5, unknown_word: 1}\nrollout:\n  num_rollout: few\n",
      "run.yaml", {});
  try {
    load_run_config(config, {});
    FAIL() << "accepted";
  } catch (const Error& e) {
    const std::string text = e.what();
    const size_t contradiction = text.find("run.yaml:3:15  rl.kl_coef: is set, and grpo");
    const size_t unknown = text.find("run.yaml:3:20  rl.unknown_word: there is no such key");
    const size_t type = text.find("run.yaml:5:16  rollout.num_rollout: must be a whole number");
    ASSERT_NE(type, std::string::npos) << text;
    EXPECT_LT(contradiction, unknown) << text;
    EXPECT_LT(unknown, type) << text;
  }
}

bool is_key(const std::string& path) {
  RunConfig run;
  config::FieldLister lister;
  bind(lister, run);
  return std::ranges::count(lister.fields(), path, &config::FieldInfo::path) == 1;
}

// config.resolved.yaml of a run describes the same run.
TEST(RunConfig, ResolvedYamlReadsBack) {
  Json c;
  c["set"] = Json::object();
  c["set"]["rollout.rollout_batch_size"] = 8;
  c["set"]["rollout.n_samples_per_prompt"] = 4;
  c["set"]["train.global_batch_size"] = 16;
  c["set"]["rollout.rollout_stop"] = R"(["</answer>", "a: b # c"])";
  c["set"]["eval.eval_prompt_data"] = "{aime: aime.jsonl, math: m.jsonl}";
  c["set"]["data.apply_chat_template"] = true;
  c["set"]["data.apply_chat_template_kwargs"] = "{enable_thinking: false}";
  c["set"]["rl.eps_clip_c"] = 3;
  const RunConfig run = load(c);
  config::Config again = config::Config::parse(run.resolved_yaml, "config.resolved.yaml", {});
  const RunConfig copy = load_run_config(again, {});
  EXPECT_EQ(copy.resolved_yaml, run.resolved_yaml);
  EXPECT_EQ(copy.global_batch_size, 16);
  EXPECT_EQ(copy.num_steps_per_rollout, 2);
  EXPECT_EQ(copy.rollout.rollout_stop, run.rollout.rollout_stop);
  EXPECT_EQ(copy.eval.eval_prompt_data, run.eval.eval_prompt_data);
  EXPECT_EQ(copy.data.apply_chat_template_kwargs, run.data.apply_chat_template_kwargs);
  EXPECT_EQ(copy.rl.eps_clip_c, 3);
}

// The recipes in configs/ have no faults and no flags without effect. Keys without effect that a
// recipe copies from slime must still be keys.
TEST(RunConfig, RecipesAreValid) {
  int num_recipes = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(test_data_path("../configs"))) {
    if (entry.path().extension() != ".yaml") continue;
    SCOPED_TRACE(entry.path().string());
    ++num_recipes;
    config::Config config = config::Config::load(entry.path().string(), {});
    try {
      for (const config::TakenKey& key :
           load_run_config(config, {.default_run_dir = "runs/x"}).taken_keys)
        EXPECT_TRUE(is_key(key.path)) << key.path << ": " << key.why;
    } catch (const Error& e) {
      ADD_FAILURE() << e.what();
    }
  }
  EXPECT_GE(num_recipes, 5);
}

// The values of slime's recipe for GLM-Z1-9B, as far as supported.
TEST(RunConfig, GlmRecipeHasTheValuesOfItsModel) {
  config::Config config = config::Config::load(test_data_path("../configs/glm-z1-9b.yaml"), {});
  const RunConfig run = load_run_config(config, {.default_run_dir = "runs/x"});
  EXPECT_EQ(run.rollout.num_rollout, 3000);
  EXPECT_EQ(run.global_batch_size, 256);
  EXPECT_EQ(run.num_steps_per_rollout, 1);
  EXPECT_TRUE(run.rl.use_kl_loss);
  EXPECT_EQ(run.rl.kl_loss_coef, 0);
  EXPECT_EQ(run.rl.kl_loss_type, "low_var_kl");
  EXPECT_GT(run.rl.log_ref_kl_interval, 0);
  EXPECT_EQ(run.rl.eps_clip_high, 0.28);
  EXPECT_EQ(run.eval.eval_interval, 20);
  EXPECT_EQ(run.eval.n_samples_per_eval_prompt, 16);
  EXPECT_EQ(run.eval.eval_max_response_len, 16384);
  EXPECT_EQ(run.checkpoint.save_interval, 20);
  EXPECT_EQ(run.optimizer.adam_beta2, 0.98);
  EXPECT_EQ(run.optimizer.weight_decay, 0.1);
}

// Every key has a doc sentence, and a name in slime or a statement that it has none.
TEST(RunConfig, EveryKeyIsDocumented) {
  RunConfig run;
  config::FieldLister fields;
  bind(fields, run);
  EXPECT_GT(fields.fields().size(), 100u);
  for (const auto& field : fields.fields()) EXPECT_FALSE(field.meta.doc.empty()) << field.path;
}

// Counts are multiplied: no product may come near 2^63.
TEST(RunConfig, EveryIntegerKeyHasAnUpperBound) {
  RunConfig run;
  config::FieldLister fields;
  bind(fields, run);
  int num_integers = 0;
  for (const auto& field : fields.fields()) {
    if (field.type != "int" && field.type != "list of int") continue;
    ++num_integers;
    const bool is_alone = field.path == "data.seed" || field.path == "checkpoint.keep_last";
    EXPECT_LE(field.meta.max, is_alone ? 0x1p53 : 0x1p31) << field.path;
    EXPECT_GE(field.meta.min, -1) << field.path;
  }
  EXPECT_GT(num_integers, 50);
}

}  // namespace
}  // namespace slimexx::rl
