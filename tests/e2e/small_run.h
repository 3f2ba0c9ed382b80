// Training runs of a second: a tiny random checkpoint with a byte-level tokenizer, prompts, and the
// settings of a run.
#pragma once
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "e2e/program.h"
#include "slimexx/base/json.h"

namespace slimexx::e2e {

struct Family {
  std::string name;   // for test names
  std::string model;  // folder under tests/golden/models whose config.json it has
  // Of weights by which no draw of a second rollout falls between two tokens by less than the
  // rounding of the first one's update: other numbers of ranks would sample another token.
  int seed = 5;
};
void PrintTo(const Family& family, std::ostream* out);
const std::vector<Family>& families();  // llama, llama with scaled rope, qwen2, qwen3, glm4

// Makes the checkpoint: the golden model's architecture with 320 tokens and weights large enough
// that the distributions are far from uniform.
// `changes`, a JSON object, replaces keys of its config.json; `name` is the folder's, `seed` that
// of the weights.
std::string make_checkpoint(const Folder& folder, const std::string& golden_model,
                            std::string_view changes = "{}", const std::string& name = "model",
                            int seed = 5);

// Prompts of mixed length, some with a common beginning, one the beginning of another.
std::string make_prompts(const Folder& folder);

// Arguments of `train`: the settings that every small run shares, then `settings`, which win.
// The run's folder is `run_dir`.
std::vector<std::string> train_arguments(const Folder& folder, const std::string& run_dir,
                                         const std::vector<std::string>& settings);

// A run on so many ranks that are threads ends with status 2, and says each of `texts`.
void expect_refused(const Folder& folder, int thread_ranks,
                    const std::vector<std::string>& settings,
                    const std::vector<std::string>& texts);

// The objects of a JSON-lines file.
std::vector<Json> read_rows(const std::string& path);
double number(const Json& row, const std::string& key);  // fails the test if absent

}  // namespace slimexx::e2e
