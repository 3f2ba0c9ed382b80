#include "small_run.h"
#include "test_paths.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

namespace slimexx::e2e {
namespace {

constexpr const char* kConfig = R"(
data: {rollout_shuffle: true, seed: 3}
rollout:
  num_rollout: 3
  rollout_batch_size: 4
  n_samples_per_prompt: 4
  rollout_max_response_len: 24
reward: {rm_type: random}
rl: {advantage_estimator: grpo, eps_clip: 0.2, eps_clip_high: 0.28}
train: {max_tokens_per_gpu: 150}
optimizer: {lr: 1.0e-2, weight_decay: 0.1, clip_grad: 1.0}
observe: {tensorboard: false, log_samples_interval: 0}
)";

}  // namespace

void PrintTo(const Family& family, std::ostream* out) { *out << family.name; }

const std::vector<Family>& families() {
  static const std::vector<Family> all = {{"llama", "models/llama"},
                                          {"llama_scaled", "models/llama3_scaled_tied_biased"},
                                          {"qwen2", "models/qwen2_untied"},
                                          {"qwen3", "models/qwen3_tied_mqa"},
                                          {"glm4", "models/glm4_no_bias"},
                                          {"qwen3_moe", "oracle/qwen3_moe"},
                                          {"glm4_moe", "oracle/glm4_moe"},
                                          {"glm4_moe_lite", "oracle/glm4_moe_lite"},
                                          {"deepseek_v3", "oracle/deepseek_v3"},
                                          {"glm_moe_dsa", "oracle/glm_moe_dsa", 6}};
  return all;
}

std::string make_checkpoint(const Folder& folder, const std::string& golden_model,
                            std::string_view changes, const std::string& name, int seed) {
  const std::string source = test_data_path("golden/") + golden_model + "/config.json";
  Json config = parse_json(read_bytes(source), source);
  config["vocab_size"] = 320;
  config["initializer_range"] = 0.25;
  config.update(parse_json(changes, "changes"));
  const std::string path = folder.put("config.json", config.dump());
  const Finished f = run_slimexx(0, {"init", "--model-config", path, "--tokenizer", "byte-level",
                                     "--seed", std::to_string(seed), "--save", folder / name});
  EXPECT_EQ(f.status, 0) << f.text();
  return folder / name;
}

std::string make_prompts(const Folder& folder) {
  std::string lines;
  const std::string common = "A common beginning that is longer than two pages of sixteen tokens. ";
  for (const std::string& prompt : {std::string("1 + 1 ="), common + "First", common + "Second one",
                                    common, std::string("x"), common + "First, and then more",
                                    std::string("Say something short"), std::string("2 * 3 =")}) {
    lines += Json{{"prompt", prompt}, {"label", "6"}}.dump() + "\n";
  }
  return folder.put("prompts.jsonl", lines);
}

std::vector<std::string> train_arguments(const Folder& folder, const std::string& run_dir,
                                         const std::vector<std::string>& settings) {
  std::vector<std::string> arguments = {"train", "--config", folder.put("run.yaml", kConfig),
                                        "--set"};
  arguments.push_back("observe.run_dir=" + run_dir);
  arguments.push_back("model.hf_checkpoint=" + (folder / "model"));
  arguments.push_back("data.prompt_data=" + (folder / "prompts.jsonl"));
  arguments.insert(arguments.end(), settings.begin(), settings.end());
  return arguments;
}

void expect_refused(const Folder& folder, int thread_ranks,
                    const std::vector<std::string>& settings,
                    const std::vector<std::string>& texts) {
  std::vector<std::string> all = train_arguments(folder, folder / "run", settings);
  all.push_back("--thread-ranks=" + std::to_string(thread_ranks));
  const Finished f = run_slimexx(0, all);
  EXPECT_EQ(f.status, 2) << f.text();
  for (const std::string& text : texts)
    EXPECT_NE(f.text().find(text), std::string::npos) << text << " in\n" << f.text();
}

std::vector<Json> read_rows(const std::string& path) {
  std::vector<Json> rows;
  std::istringstream in(read_bytes(path));
  for (std::string line; std::getline(in, line);) rows.push_back(parse_json(line, path));
  return rows;
}

double number(const Json& row, const std::string& key) {
  if (!row.contains(key)) {
    ADD_FAILURE() << "no " << key << " in " << row.dump();
    return 0;
  }
  return row.at(key).get<double>();
}

}  // namespace slimexx::e2e
