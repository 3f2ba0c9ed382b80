#include "rl/plan/plan_lengths.h"

#include <fmt/format.h>

#include <algorithm>

#include "rl/generation/sample_source.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/io/hf_folder.h"
#include "slimexx/rl/evaluation.h"

namespace slimexx::rl {
namespace {

// Used if the data cannot be read.
constexpr int64_t kAssumedLongestPrompt = 2048, kAssumedMeanPrompt = 256;

bool is_readable(const std::string& prompt_data) {
  return path_exists(prompt_data.substr(0, prompt_data.find("@[")));
}

// Rounded to the nearest integer.
int64_t mean_of(int64_t sum, int64_t count) { return (sum + count / 2) / count; }

class LengthPlanner {
 public:
  LengthPlanner(const PlanRequest& request, const model::ModelSpec& spec, int cp)
      : request_(request),
        config_(request.config),
        spec_(spec),
        cp_(cp),
        response_(config_.rollout.rollout_max_response_len),
        evaluated_response_(config_.eval.eval_max_response_len.value_or(response_)) {}

  LengthPlan plan() {
    const std::string& folder = config_.model.hf_checkpoint;
    plan_.num_sampled_tokens = spec_.vocab_size;
    if (path_exists(join_path(folder, "tokenizer.json"))) {
      text_ = load_text_side(folder);
      plan_.num_sampled_tokens = text_.tokenizer->vocab_size();
    }
    l_.longest_response = std::max<int64_t>(response_, 1);
    check_response_tokens();
    const std::string missing = find_missing();
    l_.knows_prompts = missing.empty();
    if (config_.is_sft())
      plan_examples(missing);
    else
      plan_prompts(missing);
    l_.max_positions = generates_samples(config_) ? plan_.longest_generated : spec_.max_positions;
    check_positions();
    return std::move(plan_);
  }

 private:
  // The reason why the data cannot be read; empty if it can.
  std::string find_missing() const {
    if (text_.tokenizer == nullptr) return config_.model.hf_checkpoint + " has no tokenizer.json";
    if (config_.data.prompt_data.empty()) return "data.prompt_data is not set";
    if (!is_readable(config_.data.prompt_data)) return config_.data.prompt_data + " cannot be read";
    for (const auto& [name, path] : config_.eval.eval_prompt_data)
      if (!is_readable(path)) return path + " cannot be read";
    return {};
  }

  void check_response_tokens() const {
    if (!request_.response_tokens) return;
    const auto refuse = [](const std::string& what, const char* hint) {
      throw Error(ErrorCode::kUsage, what, hint, "--response-tokens");
    };
    if (config_.is_sft())
      refuse("is a length of generated responses, but train.loss_type sft trains on examples",
             "leave it out");
    if (*request_.response_tokens > l_.longest_response)
      refuse(fmt::format("is {}, above rollout.rollout_max_response_len {}",
                         *request_.response_tokens, response_),
             "lower it");
  }

  // Lengths of prompts, with responses up to their limit.
  void plan_prompts(const std::string& missing) {
    if (missing.empty()) {
      const auto set = data::PromptSet::load(prompt_options(config_), text_.tokenizer.get(),
                                             text_.chat_template.get());
      l_.longest_prompt = set.longest();
      int64_t sum = 0;
      for (const auto& prompt : set.prompts()) sum += std::ssize(prompt.tokens);
      l_.mean_prompt = mean_of(sum, set.size());
    } else {
      l_.longest_prompt = assumed_longest_prompt();
      l_.mean_prompt = std::min(l_.longest_prompt, kAssumedMeanPrompt);
      note(fmt::format(
          "prompts were not read ({}): assumed to have at most {} tokens, {} on average", missing,
          l_.longest_prompt, l_.mean_prompt));
    }
    l_.mean_response = request_.response_tokens.value_or(std::max<int64_t>(response_ / 2, 1));
    l_.longest_trained = l_.longest_prompt + response_;
    plan_.longest_generated = longest_evaluation(l_.longest_prompt);
    if (generates_samples(config_))
      plan_.longest_generated = std::max(plan_.longest_generated, l_.longest_trained);
  }

  // Lengths of examples for supervised fine-tuning; the prompt is the part before the first trained
  // token. Examples that are not read are assumed to fill at most one microbatch, with all tokens
  // trained.
  void plan_examples(const std::string& missing) {
    if (missing.empty()) {
      read_examples();
    } else {
      l_.longest_trained = std::min(config_.train.max_tokens_per_gpu * cp_, spec_.max_positions);
      l_.mean_prompt = 1;
      l_.mean_response = std::max<int64_t>(l_.longest_trained / 2 - l_.mean_prompt, 1);
      note(fmt::format(
          "examples were not read ({}): assumed to have at most {} tokens, {} on average", missing,
          l_.longest_trained, l_.mean()));
    }
    plan_.longest_generated = longest_evaluation(assumed_longest_prompt());
  }

  void read_examples() {
    const io::HfFolder folder = io::HfFolder::open_without_weights(config_.model.hf_checkpoint);
    data::SftSet set = load_examples(config_, text_,
                                     join_stop_tokens(folder.eos_token_ids(), spec_.vocab_size,
                                                      config_.rollout.rollout_stop_token_ids));
    int64_t sum = 0, before_learnt = 0;
    for (const data::SftExample& example : set.examples()) {
      const auto first = std::ranges::find(example.loss_mask, uint8_t{1});
      sum += std::ssize(example.tokens);
      before_learnt += std::max<int64_t>(first - example.loss_mask.begin(), 1);
    }
    l_.mean_prompt = mean_of(before_learnt, set.size());
    l_.mean_response = std::max<int64_t>(mean_of(sum, set.size()) - l_.mean_prompt, 1);
    const auto source = make_sft_source(config_, std::move(set), spec_.max_positions);
    l_.longest_trained = source->longest_sequence().value();
  }

  // The configured limit, or the assumed length clamped to the model's positions.
  int64_t assumed_longest_prompt() const {
    if (const int64_t limit = config_.rollout.rollout_max_prompt_len; limit > 0) return limit;
    const int64_t left = spec_.max_positions - std::max(response_, evaluated_response_);
    return std::clamp<int64_t>(left, 1, kAssumedLongestPrompt);
  }

  int64_t longest_evaluation(int64_t assumed_prompt) const {
    if (config_.eval.eval_prompt_data.empty()) return 0;
    if (!l_.knows_prompts) return assumed_prompt + evaluated_response_;
    return longest_evaluated(
        load_eval_sets(config_, text_.tokenizer.get(), text_.chat_template.get()), config_);
  }

  void check_positions() const {
    const int64_t longest = std::max(plan_.longest_generated, l_.max_positions);
    if (longest <= spec_.max_positions) return;
    throw Error(ErrorCode::kUsage,
                fmt::format("the longest prompt and a full response are {} tokens, but the model "
                            "supports {} positions",
                            longest, spec_.max_positions),
                "lower rollout.rollout_max_response_len", "max_position_embeddings");
  }

  void note(const std::string& text) { plan_.notes.push_back(text); }

  const PlanRequest& request_;
  const RunConfig& config_;
  const model::ModelSpec& spec_;
  const int cp_;
  const int64_t response_, evaluated_response_;
  TextSide text_;
  LengthPlan plan_;
  PlannedLengths& l_ = plan_.lengths;
};

}  // namespace

LengthPlan plan_lengths(const PlanRequest& request, const model::ModelSpec& spec, int cp) {
  return LengthPlanner(request, spec, cp).plan();
}

}  // namespace slimexx::rl
