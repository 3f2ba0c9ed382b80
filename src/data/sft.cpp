#include "slimexx/data/sft.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "data/conversation.h"
#include "data/loss_spans.h"
#include "data/row_file.h"
#include "slimexx/base/error.h"
#include "slimexx/base/log.h"
#include "slimexx/base/strings.h"

namespace slimexx::data {
namespace {

class SftReader {
 public:
  SftReader(const SftOptions& options, const text::Tokenizer& tokenizer,
            const text::ChatTemplate* chat_template)
      : options_(options), tokenizer_(tokenizer), template_(chat_template) {
    check_template_kwargs(options.apply_chat_template_kwargs.get());
    if (options.apply_chat_template && !chat_template) {
      throw Error(ErrorCode::kUsage, "apply_chat_template is set, but there is no chat template",
                  "use a model folder with chat_template.jinja, or turn off apply_chat_template");
    }
    if (options.max_len < 0) {
      throw Error(ErrorCode::kUsage, fmt::format("max_len is {}, below 0", options.max_len));
    }
  }

  SftExample read(int64_t index, const Json& row) const {
    LearntText learnt = options_.apply_chat_template ? render(row) : join(row);
    SftExample example;
    example.index = index;
    example.tokens = tokenizer_.encode(learnt.text);
    example.loss_mask =
        mask_tokens(tokenizer_, learnt.text, example.tokens, learnt.spans, options_.eos_ids);
    example.text = std::move(learnt.text);
    if (learnt.ends_with_learnt && !options_.eos_ids.empty() &&
        !ends_in_eos(tokenizer_, example.tokens, options_.eos_ids)) {
      example.tokens.push_back(options_.eos_ids.front());
      example.loss_mask.push_back(1);
    }
    if (!has_text_to_learn(example)) {
      throw Error(ErrorCode::kInput, "there is nothing to learn in the row",
                  "a conversation needs an assistant's turn, and a pair needs a response that is "
                  "not empty");
    }
    return example;
  }

 private:
  LearntText render(const Json& row) const {
    Json messages = row.contains(options_.messages_key)
                        ? read_messages(row[options_.messages_key], options_.messages_key)
                        : read_messages(require_key(row, options_.input_key), options_.input_key);
    if (!row.contains(options_.messages_key)) {
      messages.push_back(
          {{"role", "assistant"}, {"content", require_text(row, options_.response_key, false)}});
    }
    refuse_empty_turns(messages);
    return render_learnt(*template_, messages, read_tools(row, options_.tool_key),
                         options_.apply_chat_template_kwargs.get());
  }

  // Whether there is trained text besides ends of turns, the white space that a template adds to
  // them, and the first token, which no token precedes.
  bool has_text_to_learn(const SftExample& example) const {
    const auto& ends = options_.eos_ids;
    for (size_t i = 1; i < example.tokens.size(); ++i) {
      const text::TokenId id = example.tokens[i];
      if (!example.loss_mask[i] || std::ranges::find(ends, id) != ends.end()) continue;
      if (!options_.apply_chat_template || !trim(tokenizer_.token_bytes(id)).empty()) return true;
    }
    return false;
  }

  LearntText join(const Json& row) const {
    if (!row.contains(options_.input_key) && row.contains(options_.messages_key))
      throw Error(ErrorCode::kInput,
                  fmt::format("the row has messages ('{}'), but no chat template is applied",
                              options_.messages_key),
                  "set data.apply_chat_template: true");
    LearntText learnt;
    learnt.text = require_text(row, options_.input_key, true);
    const auto begin = static_cast<int64_t>(learnt.text.size());
    learnt.text += require_text(row, options_.response_key, false);
    learnt.spans = {{begin, static_cast<int64_t>(learnt.text.size())}};
    learnt.ends_with_learnt = true;
    return learnt;
  }

  const SftOptions& options_;
  const text::Tokenizer& tokenizer_;
  const text::ChatTemplate* template_;
};

}  // namespace

SftSet SftSet::load(const SftOptions& options, const text::Tokenizer& tokenizer,
                    const text::ChatTemplate* chat_template) {
  const SftReader reader(options, tokenizer, chat_template);
  SftSet set;
  RowReader rows(options.prompt_data);
  RowHash hash;
  int64_t num_rows = 0;
  for (std::vector<Row> batch; rows.next(batch);) {
    std::vector<SftExample> examples(batch.size());
    for_each_row(
        batch, [&](size_t i, const Json& row) { examples[i] = reader.read(batch[i].index, row); });
    for (size_t i = 0; i < batch.size(); ++i) {
      if (options.max_len > 0 && std::ssize(examples[i].tokens) > options.max_len) continue;
      hash.add(batch[i]);
      set.examples_.push_back(std::move(examples[i]));
    }
    num_rows += std::ssize(batch);
  }
  set.num_dropped_ = num_rows - std::ssize(set.examples_);
  if (set.examples_.empty()) {
    throw Error(ErrorCode::kInput,
                fmt::format("all {} examples are longer than {} tokens", num_rows, options.max_len),
                "raise rollout.rollout_max_prompt_len", options.prompt_data);
  }
  if (set.num_dropped_ > 0) {
    log_warn(
        "{}: dropped {} of {} examples, which are longer than rollout.rollout_max_prompt_len {}",
        options.prompt_data, set.num_dropped_, num_rows, options.max_len);
  }
  set.content_hash_ = hash.digits();
  return set;
}

}  // namespace slimexx::data
