// Evaluation: n samples of every prompt of several sets, graded; pass@k, lengths, tables and
// per-sample lines.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slimexx/observe/metrics.h"
#include "slimexx/rl/generation.h"
#include "slimexx/rl/run_config.h"

namespace slimexx::rl {

struct EvalSet {
  std::string name, file;
  std::shared_ptr<const data::PromptSet> prompts;
};

// Names of eval.eval_prompt_data become parts of file names and metrics: letters, digits, _ . -
bool is_set_name(std::string_view name);

struct EvalResult {
  std::string name;
  int64_t num_prompts = 0, num_samples = 0;
  int64_t num_failed = 0;  // samples without a grade: left out of the mean reward and pass@k
  double mean_reward = 0, mean_response_length = 0, truncated_ratio = 0;
  std::vector<std::pair<int64_t, double>> pass_at = {};  // k, estimate; k = 1, 2, 4 ... up to n
};

// Unbiased estimate of pass@k from c correct of n: 1 - C(n-c, k) / C(n, k) (arXiv:2107.03374, eq.
// 1).
double pass_at_k(int64_t n, int64_t c, int64_t k);

std::vector<EvalSet> load_eval_sets(const RunConfig& config, const text::Tokenizer* tokenizer,
                                    const text::ChatTemplate* chat_template);
reward::RewardOptions eval_reward_options(const RunConfig& config);
// Tokens of the longest prompt of the sets plus a full response; 0 if there are no sets.
int64_t longest_evaluated(const std::vector<EvalSet>& sets, const RunConfig& config);
// The key that sets the stop tokens of an evaluation.
const char* eval_stop_tokens_key(const RunConfig& config);
// Throws Error(kUsage) if a prompt with a full response exceeds the model's positions.
void check_positions(const std::vector<EvalSet>& sets, const RunConfig& config,
                     int64_t max_positions);

// Runs all sets; a sample counts as correct if its reward is 1. Rank 0 writes the samples of a set
// to the file that `samples_file` returns for its name; if the function or the name is empty, no
// samples are written. The metrics go into `row`. Give `should_stop` on all ranks or on none; soon
// after it returns true on one rank, all ranks throw Error(kInterrupted) and `row` is unchanged.
// Collective.
std::vector<EvalResult> evaluate(const std::vector<EvalSet>& sets, const RunConfig& config,
                                 Generator& generator, reward::Grader& grader,
                                 const std::vector<int32_t>& stop_token_ids, int64_t rollout,
                                 int64_t weight_version,
                                 const std::function<std::string(const std::string&)>& samples_file,
                                 bool is_root, observe::MetricRow& row,
                                 const std::function<bool()>& should_stop = {});

std::string format_eval_table(const std::vector<EvalResult>& results);
std::string format_eval_markdown(const std::vector<EvalResult>& results);  // for TensorBoard

}  // namespace slimexx::rl
