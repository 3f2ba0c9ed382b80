// Training runs that take a second: a tiny random checkpoint with a byte-level tokenizer, prompts,
// and settings.
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
  std::string model;  // folder under tests/golden/models with its config.json
  // Chosen so that rounding changes no token of the second rollout: the first update's rounding
  // depends on the number of ranks, and it could change a draw close to the boundary of two tokens.
  int seed = 5;
};
void PrintTo(const Family& family, std::ostream* out);
const std::vector<Family>& families();  // llama, llama with scaled rope, qwen2, qwen3, glm4

// Makes the checkpoint: the golden model's architecture with 320 tokens and weights large enough
// for distributions far from uniform. `changes`, a JSON object, replaces keys of its config.json;
// `name` is the name of the folder; `seed` is for the weights.
std::string make_checkpoint(const Folder& folder, const std::string& golden_model,
                            std::string_view changes = "{}", const std::string& name = "model",
                            int seed = 5);

// Prompts of mixed lengths: some share a prefix, and one is a prefix of another.
std::string make_prompts(const Folder& folder);

// Arguments of `train`: the settings shared by all small runs, then `settings`, which override
// them. The run's folder is `run_dir`.
std::vector<std::string> train_arguments(const Folder& folder, const std::string& run_dir,
                                         const std::vector<std::string>& settings);

// Expects a run on `thread_ranks` ranks to end with status 2 and to print each of `texts`.
void expect_refused(const Folder& folder, int thread_ranks,
                    const std::vector<std::string>& settings,
                    const std::vector<std::string>& texts);

// The objects of a JSON-lines file.
std::vector<Json> read_rows(const std::string& path);
double number(const Json& row, const std::string& key);  // fails the test if absent

}  // namespace slimexx::e2e
