#include "cli/rows/generate_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/rows/prompt_text.h"
#include "cli/rows/result_lines.h"
#include "cli/rows/row_batch.h"
#include "cli/rows/token_rows.h"
#include "cli/run_flags.h"
#include "slimexx/base/error.h"
#include "slimexx/base/log.h"
#include "slimexx/base/strings.h"
#include "slimexx/dist/host.h"
#include "slimexx/observe/console.h"
#include "slimexx/observe/span.h"
#include "slimexx/rl/generation.h"
#include "slimexx/rl/loaded_model.h"

namespace slimexx::cli {
namespace {

constexpr int64_t kBatchRows = 1024;
constexpr double kLeastTopP = 1e-6;  // distinct from zero in the sampler's float32
constexpr double kMaxCacheGib = 1e6;
constexpr int64_t kMaxSamples = int64_t{1} << 26;  // all lines are kept in memory

using Prompts = std::vector<std::vector<int32_t>>;

std::vector<int32_t> read_prompt(const GenerateFlags& flags, const PromptText& text,
                                 const Json& row, int64_t vocab_size) {
  if (!row.contains(flags.input_key)) {
    if (row.contains("tokens")) return read_tokens(row, vocab_size, 1, INT32_MAX, "");
    throw Error(ErrorCode::kInput,
                fmt::format("the row has neither key \"{}\" nor \"tokens\"", flags.input_key),
                "write {\"prompt\": \"text\" or [messages]} or {\"tokens\": [ids]}");
  }
  const Json& prompt = row.at(flags.input_key);
  if (prompt.is_string() && !flags.apply_chat_template) {
    return text.encode(prompt.get<std::string>());
  }
  Json variables = {{"add_generation_prompt", true}};
  variables["messages"] =
      prompt.is_string() ? Json::array({Json{{"role", "user"}, {"content", prompt}}}) : prompt;
  if (const auto tools = row.find("tools"); tools != row.end()) variables["tools"] = *tools;
  return text.encode(text.render(variables));
}

// Checks that every prompt leaves room for one token.
Prompts read_prompts(const GenerateFlags& flags, const PromptText& text,
                     const model::ModelSpec& spec) {
  io::LineReader input(flags.input);
  Prompts prompts;
  RowBatch batch;
  while (read_batch(input, kBatchRows, batch)) {
    prompts.resize(prompts.size() + batch.size());
    for_each_row(batch, [&](size_t i) {
      auto tokens = read_prompt(flags, text, batch.rows[i], spec.vocab_size);
      if (tokens.empty()) throw Error(ErrorCode::kInput, "the prompt is empty");
      if (std::ssize(tokens) >= spec.max_positions) {
        throw Error(ErrorCode::kInput,
                    fmt::format("the prompt of {} tokens leaves no room for a response within "
                                "max_position_embeddings {}",
                                tokens.size(), spec.max_positions),
                    "shorten the prompt");
      }
      prompts[static_cast<size_t>(batch.first_index) + i] = std::move(tokens);
    });
  }
  require_rows(std::ssize(prompts), flags.input);
  if (std::ssize(prompts) > kMaxSamples / flags.n) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{} samples for each of {} prompts are more than {} in total", flags.n,
                            prompts.size(), kMaxSamples),
                "lower --n, or split the prompts over several calls", "--n");
  }
  return prompts;
}

int64_t longest_sequence(const Prompts& prompts, int64_t max_new_tokens,
                         const model::ModelSpec& spec) {
  size_t longest = 1;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
  const auto room = spec.max_positions - static_cast<int64_t>(longest);
  return static_cast<int64_t>(longest) + std::min(room, max_new_tokens);
}

class GenerateRun {
 public:
  GenerateRun(const GenerateFlags& flags, Session& session)
      : flags_(flags),
        session_(session),
        device_(rl::select_device(flags.device, session_.world.local_rank())),
        model_(rl::load_model(flags.hf_checkpoint, device_, false)),
        text_(flags.hf_checkpoint),
        prompts_(read_prompts(flags, text_, model_.spec)),
        max_sequence_(longest_sequence(prompts_, flags.max_new_tokens, model_.spec)),
        decoder_(model_.spec, device_, max_sequence_),
        weights_(model::bind_weights(*model_.store, model_.spec)),
        engine_(decoder_, weights_, device_, engine_options(), token_bytes(), num_sampled()) {}

  // Returns the lines of all samples in prompt-major order, on every rank.
  std::vector<std::string> run() {
    const observe::Span span("generate_all");
    const std::string mine = generate();
    std::vector<std::string> lines(prompts_.size() * static_cast<size_t>(flags_.n));
    for (const std::string& all : dist::all_gather_bytes(session_.world.ranks(), mine)) {
      for (size_t at = 0; at < all.size();) {
        const size_t tab = all.find('\t', at), end = all.find('\n', tab);
        lines[std::stoul(all.substr(at, tab - at))] = all.substr(tab + 1, end - tab - 1);
        at = end + 1;
      }
    }
    if (session_.is_root()) {
      log_info("{} samples of {} prompts in {}", lines.size(), prompts_.size(),
               format_duration(span.seconds()));
    }
    return lines;
  }

 private:
  rollout::EngineOptions engine_options() const {
    const rollout::EngineOptions defaults;
    const int64_t samples = std::ssize(prompts_) * flags_.n;
    return {.max_running_requests = std::clamp<int64_t>(samples, 1, defaults.max_running_requests),
            .kv_cache_gib = flags_.kv_cache_gib,
            .max_sequence_tokens = max_sequence_};
  }

  rollout::TokenBytes token_bytes() const {
    const text::Tokenizer* tokenizer = text_.tokenizer();
    if (tokenizer == nullptr) return {};
    return [tokenizer](int32_t id) -> const std::string& { return tokenizer->token_bytes(id); };
  }
  int64_t num_sampled() const {
    const text::Tokenizer* tokenizer = text_.tokenizer();
    return tokenizer == nullptr ? 0 : std::min(tokenizer->vocab_size(), model_.spec.vocab_size);
  }

  rollout::SamplingParams sampling() const {
    const bool greedy = flags_.greedy || flags_.temperature == 0;
    return {.temperature = flags_.temperature == 0 ? 1.0f : static_cast<float>(flags_.temperature),
            .top_p = static_cast<float>(flags_.top_p),
            .top_k = static_cast<int32_t>(std::max<int64_t>(0, flags_.top_k)),
            .greedy = greedy,
            .max_new_tokens = flags_.max_new_tokens,
            .stop_token_ids = model_.eos_token_ids,
            .stop = {}};
  }

  // Returns a line "id\tJSON\n" for each sample that this rank generated.
  std::string generate() {
    std::vector<rollout::GroupRequest> groups;
    for (const auto& prompt : prompts_) groups.push_back({prompt, std::ssize(groups)});
    const int64_t num_samples = std::ssize(prompts_) * flags_.n;
    observe::ProgressBar bar("generate", num_samples, session_.is_root());
    std::string lines;
    rl::generate_on_ranks(engine_, dist::groups_of_one(),
                          {.groups = groups,
                           .n_samples_per_prompt = flags_.n,
                           .sampling = sampling(),
                           .seed = static_cast<uint64_t>(flags_.seed)},
                          session_.world.ranks(), {},
                          [&](const rollout::Completion& completion, int64_t num_finished) {
                            lines += fmt::format("{}\t{}\n", completion.id, to_line(completion));
                            bar.advance_to(num_finished);
                          });
    bar.advance_to(num_samples);
    return lines;
  }

  std::string to_line(const rollout::Completion& g) const {
    constexpr std::string_view kFinish[] = {"stop", "length", "abort"};
    const text::Tokenizer* tokenizer = text_.tokenizer();
    std::string line =
        fmt::format("{{\"index\":{},\"sample\":{},\"tokens\":", g.id / flags_.n, g.id % flags_.n);
    append_ids(line, g.tokens);
    line += ",\"response\":" +
            quote_json(tokenizer == nullptr ? "" : tokenizer->decode(g.tokens, true));
    line += ",\"logprobs\":";
    append_floats(line, g.log_probs);
    return line + fmt::format(",\"finish\":\"{}\"}}", kFinish[static_cast<size_t>(g.finish)]);
  }

  const GenerateFlags& flags_;
  Session& session_;
  tensor::Device device_;
  rl::LoadedModel model_;
  PromptText text_;
  Prompts prompts_;
  int64_t max_sequence_;
  model::Decoder decoder_;
  model::ModelParameters weights_;
  rollout::Engine engine_;
};

void check_flags(const GenerateFlags& flags) {
  const auto require = [](bool holds, const char* flag, const std::string& wanted) {
    if (!holds) throw Error(ErrorCode::kUsage, "the value is out of range", wanted, flag);
  };
  require(flags.n >= 1, "--n", "give at least 1");
  require(flags.max_new_tokens >= 1, "--max-new-tokens", "give at least 1");
  if (flags.temperature != 0) require_temperature(flags.temperature);
  require(flags.top_p >= kLeastTopP && flags.top_p <= 1, "--top-p",
          fmt::format("give a number from {} to 1", kLeastTopP));
  require(flags.top_k >= -1 && flags.top_k <= INT32_MAX, "--top-k", "give a count, or 0 for all");
  // The flag parser clamps too large values to INT64_MAX.
  require(flags.seed >= 0 && flags.seed < INT64_MAX, "--seed", "give a whole number of at least 0");
  require(!flags.kv_cache_gib || (*flags.kv_cache_gib > 0 && *flags.kv_cache_gib <= kMaxCacheGib),
          "--kv-cache-gib", fmt::format("give a number above 0, at most {}", kMaxCacheGib));
}

}  // namespace

void run_generate(const GenerateFlags& flags, Session& session) {
  check_flags(flags);
  require_file("--input", flags.input);
  require_other_file(flags.input, flags.output);
  ResultLines output(flags.output, session.is_root());
  try {
    for (const std::string& line : GenerateRun(flags, session).run()) output.write(line);
  } catch (const Error& e) {
    throw e.with_where(flags.hf_checkpoint);
  }
  output.finish();
}

}  // namespace slimexx::cli
