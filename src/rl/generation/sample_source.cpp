#include "rl/generation/sample_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "rl/checkpoint/stop_signal.h"
#include "rl/config/speculation.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/io/checkpoint.h"

namespace slimexx::rl {
namespace {

Json cursor_to_json(const data::Cursor& c) {
  Json state;
  state["epoch"] = c.epoch;
  state["offset"] = c.offset;
  state["shuffle"] = c.shuffle;
  state["seed"] = c.seed;
  state["num_rows"] = c.num_rows;
  state["content_hash"] = c.content_hash;
  return state;
}

data::Cursor cursor_from_json(const Json& state) {
  const std::string where;  // empty: the caller adds the file to errors
  data::Cursor c;
  c.epoch = io::read_counter(state, "epoch", where);
  c.offset = io::read_counter(state, "offset", where);
  const bool has_shuffle = state.contains("shuffle");
  if (has_shuffle && !state["shuffle"].is_boolean()) {
    throw Error(ErrorCode::kInput, "key \"shuffle\" of the state must be true or false",
                "the checkpoint is damaged: load another one");
  }
  c.shuffle = has_shuffle && state["shuffle"].get<bool>();
  c.seed = json_int(state, "seed", where);
  c.num_rows = io::read_counter(state, "num_rows", where);
  c.content_hash = json_string(state, "content_hash", where);
  return c;
}

// Rollouts of a run of `num_epochs` passes. `num_done` rollouts are done and used `done_rows` rows.
int64_t count_rollouts(int64_t num_rows, int64_t num_epochs, int64_t batch_size, int64_t num_done,
                       int64_t done_rows) {
  const int64_t left = std::max<int64_t>(0, num_rows * num_epochs - done_rows);
  return std::max<int64_t>(1, num_done + left / batch_size);
}

class GeneratedSource : public SampleSource {
 public:
  GeneratedSource(const RunConfig& config, std::shared_ptr<const data::PromptSet> prompts,
                  Generator& generator, reward::Grader& grader,
                  const std::vector<int32_t>& stop_token_ids)
      : config_(config),
        source_(std::move(prompts), prompt_options(config)),
        generator_(generator),
        grader_(grader) {
    const RolloutOptions& o = config.rollout;
    sampling_ = {.temperature = static_cast<float>(config.training_temperature()),
                 .top_p = static_cast<float>(o.rollout_top_p),
                 .top_k = static_cast<int32_t>(std::max<int64_t>(0, o.rollout_top_k)),
                 .min_p = static_cast<float>(o.rollout_min_p),
                 .max_new_tokens = o.rollout_max_response_len,
                 .stop_token_ids = stop_token_ids,
                 .stop = o.rollout_stop};
  }

  DrawnSamples next(int64_t rollout, int64_t weight_version) override {
    const RolloutOptions& o = config_.rollout;
    const auto filter = find_dynamic_filter(o.dynamic_sampling_filter_path);
    const std::string label = fmt::format("rollout {}", rollout);
    const int64_t asked_before = asked_rows(rollout);
    int num_draws = 0;
    int64_t num_tokens = 0, longest = 0;
    const auto draw = [&](int64_t num_groups) {
      std::vector<Sample> samples =
          generate(rollout, weight_version, num_groups,
                   ++num_draws == 1 ? label : fmt::format("{}, draw {}", label, num_draws));
      for (const Sample& s : samples) {
        num_tokens += s.response_length;
        longest = std::max(longest, s.response_length);
      }
      return samples;
    };
    DrawnSamples drawn;
    if (filter) {
      drawn = fill_rollout(*filter, o, most_dropped(o.rollout_batch_size), draw, label);
    } else {
      drawn.samples = draw(o.rollout_batch_size);
    }
    drawn.num_generated_tokens = num_tokens;
    drawn.longest_response = longest;
    asked_rows_ = asked_before + o.rollout_batch_size;
    return drawn;
  }
  Json state() const override {
    Json state = cursor_to_json(source_.cursor());
    if (asked_rows_ && (is_filtered() || *asked_rows_ != source_.cursor().num_drawn()))
      state["asked_rows"] = *asked_rows_;
    return state;
  }
  void restore(const Json& state) override {
    source_.restore(cursor_from_json(state));
    const int64_t num_drawn = source_.cursor().num_drawn();
    asked_rows_.reset();
    if (state.contains("asked_rows")) asked_rows_ = io::read_counter(state, "asked_rows", "");
    if (asked_rows_.value_or(0) <= num_drawn) return;
    throw Error(
        ErrorCode::kInput,
        fmt::format("\"asked_rows\" is {}, but only {} rows were drawn", *asked_rows_, num_drawn),
        "the checkpoint is damaged; resume from an earlier one");
  }
  int64_t num_rollouts(int64_t num_done) const override {
    if (config_.rollout.num_rollout) return *config_.rollout.num_rollout;
    return count_rollouts(source_.set().size(), config_.rollout.num_epoch.value_or(1),
                          config_.rollout.rollout_batch_size, num_done, asked_rows(num_done));
  }
  bool is_generated() const override { return true; }

 private:
  // Groups dropped in a row that end the run: those of 16 rollouts, but at least 64, so that small
  // rollouts do not end it by chance. One pass over few rows proves little: the next pass has other
  // responses.
  static int64_t most_dropped(int64_t batch_size) { return std::max<int64_t>(64, 16 * batch_size); }

  // A filter that draws again drops groups without grades; a filter that fills up with dropped
  // groups may need them.
  bool drops_failed_groups() const {
    const auto filter = find_dynamic_filter(config_.rollout.dynamic_sampling_filter_path);
    return filter && !filter->keeps_rest;
  }
  bool is_filtered() const { return !config_.rollout.dynamic_sampling_filter_path.empty(); }
  // Rows of the rollouts before `rollout`, without the extra rows that a filter drew: these must
  // not shorten a run of num_epoch epochs. Older checkpoints lack this number: estimate it.
  int64_t asked_rows(int64_t rollout) const {
    if (asked_rows_) return *asked_rows_;
    const int64_t num_drawn = source_.cursor().num_drawn();
    if (!is_filtered()) return num_drawn;
    return std::min(num_drawn, rollout * config_.rollout.rollout_batch_size);
  }

  std::vector<Sample> generate(int64_t rollout, int64_t weight_version, int64_t num_groups,
                               const std::string& label) {
    std::vector<PromptGroup> groups;
    int64_t number = source_.cursor().num_drawn();
    for (const data::Prompt* prompt : source_.draw(num_groups))
      groups.push_back({prompt, number++});
    return generator_.generate({.groups = groups,
                                .n_samples_per_prompt = config_.rollout.n_samples_per_prompt,
                                .sampling = sampling_,
                                .seed = static_cast<uint64_t>(config_.data.seed),
                                .rollout = rollout,
                                .weight_version = weight_version,
                                .label = label,
                                .stop_on_grader_failure = config_.reward.on_failure == "stop",
                                .may_lack_grades = drops_failed_groups(),
                                .should_stop = stop_was_requested},
                               grader_);
  }

  const RunConfig& config_;
  data::PromptSource source_;
  Generator& generator_;
  reward::Grader& grader_;
  rollout::SamplingParams sampling_;
  std::optional<int64_t> asked_rows_;
};

// A file is one rollout; a folder has one file per rollout, in name order.
class DumpSource : public SampleSource {
 public:
  explicit DumpSource(const RunConfig& config) {
    const std::string& path = config.debug.load_rollout;
    if (std::filesystem::is_directory(path)) {
      for (const auto& entry : std::filesystem::directory_iterator(path)) {
        if (entry.is_regular_file()) files_.push_back(entry.path().string());
      }
      std::sort(files_.begin(), files_.end());
    } else {
      files_.push_back(path);
    }
    if (files_.empty())
      throw Error(ErrorCode::kUsage, "the folder holds no dump",
                  "give a file or folder of rollout dumps", path);
    num_rollouts_ = std::min<int64_t>(config.rollout.num_rollout.value_or(INT64_MAX),
                                      static_cast<int64_t>(files_.size()));
  }
  DrawnSamples next(int64_t rollout, int64_t) override {
    return {.samples = sample::load_rollout(files_[static_cast<size_t>(rollout)])};
  }
  Json state() const override { return Json::object(); }
  void restore(const Json&) override {}
  int64_t num_rollouts(int64_t) const override { return num_rollouts_; }
  bool is_generated() const override { return false; }

 private:
  std::vector<std::string> files_;
  int64_t num_rollouts_;
};

// The response begins at the first trained token.
Sample sample_of_example(const data::SftExample& example, int64_t group, int64_t rollout) {
  Sample s;
  s.group = group;
  s.rollout = rollout;
  s.tokens = example.tokens;
  const auto first = std::find(example.loss_mask.begin(), example.loss_mask.end(), uint8_t{1});
  // The first token cannot be trained: no token before it could predict it.
  const int64_t begin = std::max<int64_t>(1, first - example.loss_mask.begin());
  s.response_length = static_cast<int64_t>(example.tokens.size()) - begin;
  s.loss_mask.assign(example.loss_mask.begin() + begin, example.loss_mask.end());
  s.prompt_text = example.text;
  return s;
}

class SftSource : public SampleSource {
 public:
  SftSource(const RunConfig& config, data::SftSet set, int64_t max_positions)
      : batch_size_(config.global_batch_size),
        num_epochs_(config.rollout.num_epoch.value_or(config.train.num_sft_epochs)),
        num_rollouts_(config.rollout.num_rollout),
        set_(std::move(set)),
        order_(set_.size(), config.data.rollout_shuffle, config.data.seed, set_.content_hash()) {
    for (const auto& example : set_.examples()) {
      const auto refuse = [&](const std::string& what, const std::string& hint) {
        throw Error(ErrorCode::kInput, what, hint,
                    fmt::format("{}: row {}", config.data.prompt_data, example.index));
      };
      if (std::ssize(example.tokens) > max_positions)
        refuse(fmt::format("an example has {} tokens, but the model supports {} positions",
                           example.tokens.size(), max_positions),
               "shorten or remove such examples; rollout.rollout_max_prompt_len drops long ones");
      const bool learns = std::find(example.loss_mask.begin() + 1, example.loss_mask.end(),
                                    uint8_t{1}) != example.loss_mask.end();
      if (example.tokens.size() < 2 || !learns)
        refuse("an example has no token to train on", "add an assistant message to it");
    }
  }
  DrawnSamples next(int64_t rollout, int64_t) override {
    std::vector<Sample> samples;
    int64_t number = order_.cursor().num_drawn();
    for (int64_t row : order_.draw(batch_size_)) {
      samples.push_back(
          sample_of_example(set_.examples()[static_cast<size_t>(row)], number++, rollout));
    }
    return {.samples = std::move(samples)};
  }
  Json state() const override { return cursor_to_json(order_.cursor()); }
  void restore(const Json& state) override { order_.restore(cursor_from_json(state)); }
  int64_t num_rollouts(int64_t num_done) const override {
    return num_rollouts_.value_or(count_rollouts(set_.size(), num_epochs_, batch_size_, num_done,
                                                 order_.cursor().num_drawn()));
  }
  std::optional<int64_t> longest_sequence() const override {
    size_t longest = 0;
    for (const auto& example : set_.examples()) longest = std::max(longest, example.tokens.size());
    return static_cast<int64_t>(longest);
  }
  bool is_generated() const override { return false; }

 private:
  int64_t batch_size_, num_epochs_;
  std::optional<int64_t> num_rollouts_;  // set by the configuration
  data::SftSet set_;
  data::EpochOrder order_;
};

}  // namespace

data::PromptOptions prompt_options(const RunConfig& config) {
  data::PromptOptions o;
  o.prompt_data = config.data.prompt_data;
  o.input_key = config.data.input_key;
  o.label_key = config.data.label_key;
  o.tool_key = config.data.tool_key;
  o.apply_chat_template = config.data.apply_chat_template;
  if (!config.data.apply_chat_template_kwargs.empty()) {
    o.apply_chat_template_kwargs = std::make_shared<const Json>(
        parse_json(config.data.apply_chat_template_kwargs, "data.apply_chat_template_kwargs"));
  }
  o.rollout_shuffle = config.data.rollout_shuffle;
  o.seed = config.data.seed;
  o.rollout_max_prompt_len = config.rollout.rollout_max_prompt_len;
  o.check_metadata = [](const std::shared_ptr<const Json>& metadata) {
    reward::RewardInput row;
    row.metadata = metadata;
    reward::check_own_rm_type(row);
  };
  return o;
}

data::SftSet load_examples(const RunConfig& config, const TextSide& text,
                           const std::vector<int32_t>& stop_tokens) {
  const data::PromptOptions prompts = prompt_options(config);
  data::SftOptions o;
  o.prompt_data = prompts.prompt_data;
  o.messages_key = config.data.messages_key;
  o.input_key = config.data.input_key;
  o.response_key = config.data.response_key;
  o.tool_key = config.data.tool_key;
  o.apply_chat_template = config.data.apply_chat_template;
  o.apply_chat_template_kwargs = prompts.apply_chat_template_kwargs;
  o.max_len = config.rollout.rollout_max_prompt_len;
  o.eos_ids = stop_tokens;
  return data::SftSet::load(o, *text.tokenizer, text.chat_template.get());
}

rollout::EngineOptions engine_options(const RolloutOptions& o, int64_t longest_sequence) {
  const auto of_group = [&](int64_t of_engine) {
    return std::max<int64_t>(of_engine / o.dp_size, 1);
  };
  rollout::EngineOptions options{.page_tokens = o.page_size,
                                 .max_running_requests = of_group(o.max_running_requests),
                                 .chunked_prefill_size = of_group(o.chunked_prefill_size),
                                 .enable_prefix_cache = !o.disable_radix_cache,
                                 .max_total_tokens = o.max_total_tokens,
                                 .kv_cache_gib = o.kv_cache_gib,
                                 .mem_fraction_static = o.mem_fraction_static,
                                 .max_sequence_tokens = longest_sequence};
  set_speculation(o, options);
  return options;
}

std::unique_ptr<SampleSource> make_generated_source(const RunConfig& config,
                                                    std::shared_ptr<const data::PromptSet> prompts,
                                                    Generator& generator, reward::Grader& grader,
                                                    const std::vector<int32_t>& stop_token_ids) {
  return std::make_unique<GeneratedSource>(config, std::move(prompts), generator, grader,
                                           stop_token_ids);
}

std::unique_ptr<SampleSource> make_dump_source(const RunConfig& config) {
  return std::make_unique<DumpSource>(config);
}

std::unique_ptr<SampleSource> make_sft_source(const RunConfig& config, data::SftSet set,
                                              int64_t max_positions) {
  return std::make_unique<SftSource>(config, std::move(set), max_positions);
}

}  // namespace slimexx::rl
