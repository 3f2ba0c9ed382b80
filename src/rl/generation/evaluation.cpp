#include "slimexx/rl/evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "rl/config/positions.h"
#include "rl/generation/sample_source.h"
#include "rl/training/learning_watch.h"
#include "rl/training/sample_metrics.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/log.h"
#include "slimexx/observe/console.h"
#include "slimexx/observe/span.h"
#include "slimexx/rl/loaded_model.h"

namespace slimexx::rl {
namespace {

// The seed for the samples of one set. It differs from training's and does not depend on the other
// sets.
uint64_t seed_of_set(int64_t seed, const std::string& name) {
  constexpr uint64_t kEvalSeedMix = 0x6576616C75617465;  // "evaluate"
  uint64_t hash = 0xCBF29CE484222325;                    // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return static_cast<uint64_t>(seed) ^ kEvalSeedMix ^ hash;
}

int64_t response_limit(const RunConfig& config) {
  return config.eval.eval_max_response_len.value_or(config.rollout.rollout_max_response_len);
}

rollout::SamplingParams eval_sampling(const RunConfig& config,
                                      const std::vector<int32_t>& stop_token_ids) {
  const EvalOptions& e = config.eval;
  const RolloutOptions& r = config.rollout;
  // For supervised fine-tuning the training temperature is 1.
  const double temperature = e.eval_temperature.value_or(config.training_temperature());
  return {
      .temperature = temperature > 0 ? static_cast<float>(temperature) : 1.0f,
      .top_p = static_cast<float>(e.eval_top_p.value_or(r.rollout_top_p)),
      .top_k = static_cast<int32_t>(std::max<int64_t>(0, e.eval_top_k.value_or(r.rollout_top_k))),
      .min_p = static_cast<float>(e.eval_min_p.value_or(r.rollout_min_p)),
      .greedy = temperature == 0,
      .max_new_tokens = response_limit(config),
      .stop_token_ids = stop_token_ids,
      .stop = e.eval_stop};
}

EvalResult summarise(const EvalSet& set, const std::vector<Sample>& samples, int64_t n) {
  EvalResult result{.name = set.name,
                    .num_prompts = set.prompts->size(),
                    .num_samples = static_cast<int64_t>(samples.size())};
  struct Group {
    int64_t graded = 0, correct = 0;
  };
  std::map<int64_t, Group> groups;
  for (const auto& s : samples) {
    result.mean_response_length += static_cast<double>(s.response_length);
    result.truncated_ratio += s.status == sample::SampleStatus::kTruncated;
    result.num_failed += s.grader_failed;
    if (s.grader_failed) continue;
    result.mean_reward += s.reward;
    groups[s.group].graded += 1;
    groups[s.group].correct += s.reward == 1;
  }
  const auto total = static_cast<double>(samples.size());
  result.mean_reward /= static_cast<double>(result.num_samples - result.num_failed);
  result.mean_response_length /= total;
  result.truncated_ratio /= total;
  // Average over the prompts that have at least k samples with a grade.
  for (int64_t k = 1; k <= n; k *= 2) {
    double sum = 0, counted = 0;
    for (const auto& [index, group] : groups) {
      if (group.graded < k) continue;
      sum += pass_at_k(group.graded, group.correct, k);
      counted += 1;
    }
    if (counted > 0) result.pass_at.emplace_back(k, sum / counted);
  }
  return result;
}

void set_metrics(observe::MetricRow& row, const EvalResult& result,
                 const std::vector<Sample>& samples) {
  const std::string prefix = "eval/" + result.name;
  row.set(prefix, result.mean_reward);
  for (const auto& [k, value] : result.pass_at)
    row.set(fmt::format("{}/pass@{}", prefix, k), value);
  row.set(prefix + "/truncated_ratio", result.truncated_ratio);
  row.set(prefix + "/num_samples", static_cast<double>(result.num_samples));
  set_zero_std(samples, prefix + "/", row);
  set_repetition(samples, prefix + "/", row);
  set_cached_tokens(samples, prefix + "/", row);
  set_grader_failed(samples, prefix + "/", row);
  set_grader_values(samples, prefix + "/reward/", row);
  std::vector<double> lengths;
  for (const auto& s : samples) lengths.push_back(static_cast<double>(s.response_length));
  observe::set_statistics(row, prefix + "/response_len", lengths);
}

void warn_of_no_answer(const std::string& name, const std::vector<Sample>& samples) {
  for (const LearningFault& fault : find_learning_faults(find_signs(samples, std::nullopt)))
    if (fault.name == "no_answer") log_warn("eval {}: {}", name, fault.what);
}

constexpr const char* kTableHeaders[] = {"set",    "prompts", "samples", "reward",
                                         "pass@1", "pass@k",  "length",  "truncated"};

std::vector<std::vector<std::string>> table_rows(const std::vector<EvalResult>& results) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& r : results) {
    const auto& last = r.pass_at.back();
    rows.push_back(
        {r.name, fmt::format("{}", r.num_prompts),
         r.num_failed == 0 ? fmt::format("{}", r.num_samples)
                           : fmt::format("{} ({} not graded)", r.num_samples, r.num_failed),
         fmt::format("{:.4f}", r.mean_reward), fmt::format("{:.4f}", r.pass_at.front().second),
         last.first > 1 ? fmt::format("{:.4f} (k={})", last.second, last.first) : "-",
         fmt::format("{:.1f}", r.mean_response_length),
         fmt::format("{:.1f}%", 100 * r.truncated_ratio)});
  }
  return rows;
}

}  // namespace

double pass_at_k(int64_t n, int64_t c, int64_t k) {
  if (n - c < k) return 1;
  double all_wrong = 1;
  for (int64_t i = n - c + 1; i <= n; ++i)
    all_wrong *= 1 - static_cast<double>(k) / static_cast<double>(i);
  return 1 - all_wrong;
}

bool is_set_name(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-';
  });
}

std::vector<EvalSet> load_eval_sets(const RunConfig& config, const text::Tokenizer* tokenizer,
                                    const text::ChatTemplate* chat_template) {
  std::vector<EvalSet> sets;
  for (const auto& [name, path] : config.eval.eval_prompt_data) {
    data::PromptOptions options = prompt_options(config);
    options.prompt_data = path;
    options.rollout_shuffle = false;
    options.rollout_max_prompt_len = config.eval.eval_max_prompt_len;
    options.max_prompt_len_key = "eval.eval_max_prompt_len";
    if (!config.eval.eval_input_key.empty()) options.input_key = config.eval.eval_input_key;
    if (!config.eval.eval_label_key.empty()) options.label_key = config.eval.eval_label_key;
    auto prompts =
        std::make_shared<data::PromptSet>(data::PromptSet::load(options, tokenizer, chat_template));
    const int64_t n = config.eval.n_samples_per_eval_prompt;
    if (prompts->size() > train::kMaxSamples / n)
      throw Error(
          ErrorCode::kUsage,
          fmt::format("{} samples of {} prompts are above the limit of {} samples in memory", n,
                      prompts->size(), train::kMaxSamples),
          "lower it, or use fewer prompts: FILE@[0:1000]", "eval.n_samples_per_eval_prompt");
    sets.push_back({name, path, std::move(prompts)});
  }
  return sets;
}

int64_t longest_evaluated(const std::vector<EvalSet>& sets, const RunConfig& config) {
  int64_t longest = 0;
  for (const EvalSet& set : sets)
    longest = std::max(longest, set.prompts->longest() + response_limit(config));
  return longest;
}

const char* eval_stop_tokens_key(const RunConfig& config) {
  const bool is_derived = config.eval.eval_stop_token_ids == config.rollout.rollout_stop_token_ids;
  return is_derived ? kStopTokensKey : "eval.eval_stop_token_ids";
}

void check_positions(const std::vector<EvalSet>& sets, const RunConfig& config,
                     int64_t max_positions) {
  for (const EvalSet& set : sets)
    check_positions(*set.prompts, response_limit(config), max_positions,
                    {.file = set.file,
                     .response = "eval.eval_max_response_len",
                     .prompt = "eval.eval_max_prompt_len",
                     .of_what = " of the evaluation"});
}

reward::RewardOptions eval_reward_options(const RunConfig& config) {
  reward::RewardOptions options = config.reward;
  if (!config.eval.eval_rm_type.empty()) {
    options.rm_type = config.eval.eval_rm_type;
    options.reward_key = config.eval.eval_reward_key;
  } else if (!config.eval.eval_reward_key.empty()) {
    options.reward_key = config.eval.eval_reward_key;
  }
  return options;
}

std::vector<EvalResult> evaluate(const std::vector<EvalSet>& sets, const RunConfig& config,
                                 Generator& generator, reward::Grader& grader,
                                 const std::vector<int32_t>& stop_token_ids, int64_t rollout,
                                 int64_t weight_version,
                                 const std::function<std::string(const std::string&)>& samples_file,
                                 bool is_root, observe::MetricRow& row,
                                 const std::function<bool()>& should_stop) {
  observe::Span span("eval");
  observe::MetricRow found;
  std::vector<EvalResult> results;
  const int64_t n = config.eval.n_samples_per_eval_prompt;
  for (const EvalSet& set : sets) {
    std::vector<PromptGroup> groups;
    for (const auto& prompt : set.prompts->prompts())
      groups.push_back({&prompt, std::ssize(groups)});
    const auto samples =
        generator.generate({.groups = groups,
                            .n_samples_per_prompt = n,
                            .sampling = eval_sampling(config, stop_token_ids),
                            .seed = seed_of_set(config.data.seed, set.name),
                            .rollout = rollout,
                            .weight_version = weight_version,
                            .label = "eval " + set.name,
                            .stop_on_grader_failure = config.reward.on_failure == "stop",
                            .should_stop = should_stop},
                           grader);
    if (is_root) warn_of_no_answer(set.name, samples);
    results.push_back(summarise(set, samples, n));
    set_metrics(found, results.back(), samples);
    const std::string file = is_root && samples_file ? samples_file(set.name) : "";
    if (file.empty()) continue;
    make_directories(std::filesystem::path(file).parent_path().string());
    save_rollout(file, samples);
  }
  row.merge(found);
  return results;
}

std::string format_eval_table(const std::vector<EvalResult>& results) {
  std::vector<observe::TableColumn> columns;
  for (const char* header : kTableHeaders)
    columns.push_back({.header = header, .right_align = !columns.empty()});
  return observe::format_table(columns, table_rows(results));
}

std::string format_eval_markdown(const std::vector<EvalResult>& results) {
  std::string text = "|", rule = "|";
  for (const char* header : kTableHeaders) {
    text += fmt::format(" {} |", header);
    rule += "---|";
  }
  text += "\n" + rule + "\n";
  for (const auto& row : table_rows(results))
    text += fmt::format("| {} |\n", fmt::join(row, " | "));
  return text;
}

}  // namespace slimexx::rl
