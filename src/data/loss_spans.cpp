#include "data/loss_spans.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "data/conversation.h"
#include "slimexx/base/error.h"
#include "slimexx/base/strings.h"

namespace slimexx::data {
namespace {

constexpr const char* kSpansHint =
    "use a template that marks the assistant's text with {% generation %} ... {% endgeneration %}; "
    "configs/chat_templates/qwen3-training.jinja is one for Qwen3";

bool is_any_of(text::TokenId id, const std::vector<text::TokenId>& ids) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

bool is_assistant(const Json& message) { return message["role"] == "assistant"; }

bool is_learnt(const Json& message) {
  const auto mask = message.find("step_loss_mask");
  return mask == message.end() || *mask == 1 || *mask == true;
}

// Whether a value inside a message contains any text.
bool has_text(const Json& value) {
  if (value.is_string()) return !trim(value.get_ref<const std::string&>()).empty();
  if (!value.is_structured()) return false;
  for (const auto& [key, member] : value.items())
    if (key != "type" && key != "id" && has_text(member)) return true;
  return false;
}

// The keys of content, thoughts and tool calls vary, so every key counts as content except role,
// name, type and id.
bool is_empty_turn(const Json& message) {
  for (const auto& [key, value] : message.items())
    if (key != "role" && key != "name" && key != "type" && key != "id" && has_text(value))
      return false;
  return true;
}

Json first_messages(const Json& messages, size_t count) {
  return Json(messages.begin(), messages.begin() + static_cast<ptrdiff_t>(count));
}

int64_t require_prefix(const std::string& part, const std::string& whole, size_t turn,
                       const char* what) {
  if (whole.starts_with(part)) return static_cast<int64_t>(part.size());
  size_t same = 0;
  while (same < part.size() && same < whole.size() && part[same] == whole[same]) ++same;
  throw Error(ErrorCode::kInput,
              fmt::format("cannot compute the loss mask of message {}: {} is not a prefix of the "
                          "whole text, which differs from byte {} on",
                          turn, what, same),
              kSpansHint);
}

// One span per turn: from the end of its generation prompt to the end of the turn.
ByteSpans spans_by_prefix(const text::ChatTemplate& chat_template, const Json& messages,
                          const Json& tools, const Json* kwargs, const std::string& whole) {
  ByteSpans spans;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!is_assistant(messages[i]) || !is_learnt(messages[i])) continue;
    if (i == 0) {
      throw Error(ErrorCode::kInput,
                  "cannot compute the loss mask of message 0: the conversation starts with an "
                  "assistant's turn",
                  kSpansHint);
    }
    const auto render = [&](size_t count, bool prompt) {
      return render_conversation(chat_template, first_messages(messages, count), tools, kwargs,
                                 prompt)
          .text;
    };
    const std::string before = render(i, true);
    const std::string after = i + 1 == messages.size() ? whole : render(i + 1, false);
    require_prefix(before, after, i, "the conversation up to its generation prompt");
    spans.emplace_back(static_cast<int64_t>(before.size()),
                       require_prefix(after, whole, i, "the conversation up to its end"));
  }
  return spans;
}

ByteSpans spans_by_template(const Json& messages, const ByteSpans& rendered) {
  std::vector<const Json*> turns;
  bool all = true;
  for (const Json& message : messages) {
    if (!is_assistant(message)) continue;
    turns.push_back(&message);
    all = all && is_learnt(message);
  }
  if (all) return rendered;
  if (turns.size() != rendered.size()) {
    throw Error(ErrorCode::kInput, fmt::format("step_loss_mask needs one generation block per "
                                               "turn, but the template made {} for {} turns",
                                               rendered.size(), turns.size()));
  }
  ByteSpans spans;
  for (size_t i = 0; i < turns.size(); ++i) {
    if (is_learnt(*turns[i])) spans.push_back(rendered[i]);
  }
  return spans;
}

// Length of the first `end` bytes of the text after normalization, in bytes. Assumes that the
// normalizer treats the two sides of `end` independently.
int64_t tokenized_length(const text::Tokenizer& tokenizer, std::string_view text, int64_t end) {
  int64_t length = 0;
  for (const text::TokenId id : tokenizer.encode(text.substr(0, static_cast<size_t>(end)))) {
    length += static_cast<int64_t>(tokenizer.token_bytes(id).size());
  }
  return length;
}

}  // namespace

void refuse_empty_turns(const Json& messages) {
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!is_assistant(messages[i]) || !is_learnt(messages[i]) || !is_empty_turn(messages[i]))
      continue;
    throw Error(ErrorCode::kInput,
                fmt::format("there is nothing to learn in the row's message {}: the assistant's "
                            "turn is empty",
                            i),
                "add text to it, remove the row, or exclude the turn from the loss with "
                "\"step_loss_mask\": 0");
  }
}

LearntText render_learnt(const text::ChatTemplate& chat_template, const Json& messages,
                         const Json& tools, const Json* kwargs) {
  text::RenderedText rendered = render_conversation(chat_template, messages, tools, kwargs, false);
  LearntText out;
  out.text = std::move(rendered.text);
  out.spans = rendered.generation_spans.empty()
                  ? spans_by_prefix(chat_template, messages, tools, kwargs, out.text)
                  : spans_by_template(messages, rendered.generation_spans);
  out.ends_with_learnt = is_assistant(messages.back()) && is_learnt(messages.back());
  return out;
}

std::vector<uint8_t> mask_tokens(const text::Tokenizer& tokenizer, std::string_view text,
                                 const std::vector<text::TokenId>& tokens, const ByteSpans& spans,
                                 const std::vector<text::TokenId>& eos_ids) {
  std::string joined;
  std::vector<int64_t> begins;
  for (const text::TokenId id : tokens) {
    begins.push_back(static_cast<int64_t>(joined.size()));
    joined += tokenizer.token_bytes(id);
  }
  std::vector<uint8_t> mask(tokens.size(), 0);
  size_t token = 0;
  for (auto [begin, end] : spans) {
    if (joined != text) {
      begin = tokenized_length(tokenizer, text, begin);
      end = tokenized_length(tokenizer, text, end);
    }
    while (token < tokens.size() && begins[token] < begin) ++token;
    for (; token < tokens.size() && begins[token] < end; ++token) mask[token] = 1;
    if (token < tokens.size() && is_any_of(tokens[token], eos_ids)) mask[token] = 1;
  }
  return mask;
}

bool ends_in_eos(const text::Tokenizer& tokenizer, const std::vector<text::TokenId>& tokens,
                 const std::vector<text::TokenId>& eos_ids) {
  const auto last = std::find_if(tokens.rbegin(), tokens.rend(), [&](text::TokenId id) {
    return is_any_of(id, eos_ids) || !trim(tokenizer.token_bytes(id)).empty();
  });
  return last != tokens.rend() && is_any_of(*last, eos_ids);
}

}  // namespace slimexx::data
