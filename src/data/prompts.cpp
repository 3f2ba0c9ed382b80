#include "slimexx/data/prompts.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "data/conversation.h"
#include "data/row_file.h"
#include "slimexx/base/check.h"
#include "slimexx/base/error.h"
#include "slimexx/base/log.h"

namespace slimexx::data {
namespace {

constexpr const char* kTokensKey = "tokens";

std::string read_label(const Json& row, const std::string& label_key) {
  if (label_key.empty()) return "";
  return label_text(require_key(row, label_key));
}

std::string item_text(const Json& item) {
  return item.is_string() ? item.get<std::string>()
                          : item.dump(-1, ' ', false, Json::error_handler_t::replace);
}

class PromptReader {
 public:
  PromptReader(const PromptOptions& options, const text::Tokenizer* tokenizer,
               const text::ChatTemplate* chat_template)
      : options_(options), tokenizer_(tokenizer), template_(chat_template) {
    check_template_kwargs(options.apply_chat_template_kwargs.get());
    if (options.apply_chat_template && !chat_template) {
      throw Error(ErrorCode::kUsage, "apply_chat_template is set, but there is no chat template",
                  "use a model folder with chat_template.jinja, or turn off apply_chat_template");
    }
    if (options.rollout_max_prompt_len < 0) {
      throw Error(ErrorCode::kUsage, fmt::format("rollout_max_prompt_len is {}, below 0",
                                                 options.rollout_max_prompt_len));
    }
  }

  Prompt read(const Row& place, const Json& row) const {
    Prompt prompt;
    prompt.index = place.index;
    prompt.line_number = place.line_number;
    std::vector<text::TokenId> tokens;
    const bool ready = !row.contains(options_.input_key) && row.contains(kTokensKey);
    if (ready) {
      tokens = read_tokens(row[kTokensKey]);
      if (tokenizer_) prompt.text = tokenizer_->decode(tokens);
    } else {
      require_tokenizer();
      prompt.text = read_text(row);
      tokens = tokenizer_->encode(prompt.text);
    }
    if (tokens.empty())
      throw Error(ErrorCode::kInput, "the prompt is empty", "add text to it, or remove the row");
    prompt.tokens = PackedTokens(tokens);
    prompt.label = read_label(row, options_.label_key);
    Json rest = row;
    rest.erase(ready ? kTokensKey : options_.input_key);
    if (!options_.label_key.empty()) rest.erase(options_.label_key);
    if (!rest.empty()) prompt.metadata = std::make_shared<const Json>(std::move(rest));
    if (options_.check_metadata) options_.check_metadata(prompt.metadata);
    return prompt;
  }

 private:
  void require_tokenizer() const {
    if (tokenizer_) return;
    throw Error(ErrorCode::kUsage, "the prompts are text, but there is no tokenizer",
                "use a model folder with tokenizer.json, or give rows of {\"tokens\": [ids]}");
  }

  std::string read_text(const Json& row) const {
    if (!options_.apply_chat_template) return require_text(row, options_.input_key, true);
    const Json& value = require_key(row, options_.input_key);
    return render_conversation(*template_, read_messages(value, options_.input_key),
                               read_tools(row, options_.tool_key),
                               options_.apply_chat_template_kwargs.get(), true)
        .text;
  }

  std::vector<text::TokenId> read_tokens(const Json& list) const {
    std::vector<text::TokenId> tokens;
    if (!list.is_array())
      throw Error(ErrorCode::kInput, "'tokens' is not a list of ids", "write [1, 2, 3]");
    const int64_t limit = tokenizer_ ? tokenizer_->vocab_size() : INT32_MAX;
    for (const Json& id : list) {
      const bool valid =
          id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() < limit;
      if (!valid || (id.is_number_unsigned() && id.get<uint64_t>() > INT32_MAX)) {
        throw Error(ErrorCode::kInput,
                    fmt::format("{} in 'tokens' is not a token id below {}", id.dump(), limit),
                    "tokenize the text with this model's tokenizer");
      }
      tokens.push_back(id.get<text::TokenId>());
    }
    return tokens;
  }

  const PromptOptions& options_;
  const text::Tokenizer* tokenizer_;
  const text::ChatTemplate* template_;
};

}  // namespace

PackedTokens::PackedTokens(const std::vector<text::TokenId>& ids) : size_(ids.size()) {
  for (const text::TokenId id : ids) {
    auto left = static_cast<uint32_t>(id);
    for (; left >= 0x80; left >>= 7) bytes_ += static_cast<char>(left | 0x80);
    bytes_ += static_cast<char>(left);
  }
  bytes_.shrink_to_fit();
}

std::vector<text::TokenId> PackedTokens::unpack() const {
  std::vector<text::TokenId> ids;
  ids.reserve(size_);
  uint32_t id = 0;
  int shift = 0;
  for (const char c : bytes_) {
    const auto byte = static_cast<unsigned char>(c);
    id |= static_cast<uint32_t>(byte & 0x7f) << shift;
    shift += 7;
    if (byte >= 0x80) continue;
    ids.push_back(static_cast<text::TokenId>(id));
    id = 0;
    shift = 0;
  }
  return ids;
}

std::string label_text(const Json& label) {
  if (label.is_null()) return "";
  const auto is_answer = [](const Json& item) { return item.is_primitive() && !item.is_null(); };
  if (!label.is_array() || !std::ranges::all_of(label, is_answer)) return item_text(label);
  Json answers = Json::array();
  for (const Json& item : label) answers.push_back(item_text(item));
  return item_text(answers);
}

PromptSet PromptSet::load(const PromptOptions& options, const text::Tokenizer* tokenizer,
                          const text::ChatTemplate* chat_template) {
  const PromptReader reader(options, tokenizer, chat_template);
  PromptSet set;
  set.path_ = parse_sliced_path(options.prompt_data).path;
  const auto limit = static_cast<size_t>(options.rollout_max_prompt_len);
  RowReader rows(options.prompt_data);
  RowHash hash;
  int64_t num_rows = 0;
  for (std::vector<Row> batch; rows.next(batch);) {
    std::vector<Prompt> prompts(batch.size());
    for_each_row(batch,
                 [&](size_t i, const Json& row) { prompts[i] = reader.read(batch[i], row); });
    for (size_t i = 0; i < batch.size(); ++i) {
      if (limit > 0 && prompts[i].tokens.size() > limit) continue;
      hash.add(batch[i]);
      set.prompts_.push_back(std::move(prompts[i]));
    }
    num_rows += std::ssize(batch);
  }
  for (const Prompt& prompt : set.prompts_)
    set.longest_ = std::max<int64_t>(set.longest_, std::ssize(prompt.tokens));
  set.num_dropped_ = num_rows - std::ssize(set.prompts_);
  if (set.prompts_.empty()) {
    throw Error(ErrorCode::kInput,
                fmt::format("all {} prompts are longer than {} tokens", num_rows, limit),
                fmt::format("raise {}", options.max_prompt_len_key), options.prompt_data);
  }
  if (set.num_dropped_ > 0) {
    log_warn("{}: dropped {} of {} prompts, which are longer than {} {}", options.prompt_data,
             set.num_dropped_, num_rows, options.max_prompt_len_key, limit);
  }
  set.content_hash_ = hash.digits();
  return set;
}

std::string PromptSet::where(const Prompt& prompt) const {
  return fmt::format("{}:{}", path_, prompt.line_number);
}

PromptSource::PromptSource(std::shared_ptr<const PromptSet> set, const PromptOptions& options)
    : set_(std::move(set)),
      order_(set_->size(), options.rollout_shuffle, options.seed, set_->content_hash()) {}

std::vector<const Prompt*> PromptSource::draw(int64_t k) {
  std::vector<const Prompt*> drawn;
  for (const int64_t row : order_.draw(k)) {
    drawn.push_back(&set_->prompts()[static_cast<size_t>(row)]);
  }
  return drawn;
}

}  // namespace slimexx::data
