// The byte ranges of the assistant's text in a rendered conversation, and their tokens.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slimexx/base/json.h"
#include "slimexx/text/chat_template.h"
#include "slimexx/text/tokenizer.h"

namespace slimexx::data {

using ByteSpans =
    std::vector<std::pair<int64_t, int64_t>>;  // [begin, end), in order, not overlapping

struct LearntText {
  std::string text;
  ByteSpans spans;
  bool ends_with_learnt = false;  // the last turn is trained
};

// Throws Error(kInput) for a trained assistant turn without content: it would train only the text
// that the template adds (the end of the turn and perhaps an empty thought).
void refuse_empty_turns(const Json& messages);

// Renders the conversation and finds the spans of the assistant turns that are trained.
LearntText render_learnt(const text::ChatTemplate& chat_template, const Json& messages,
                         const Json& tools, const Json* kwargs);

// Returns the loss mask of `tokens`, which must be encode(text): 1 for each token whose first byte
// lies within a span, and for an eos token directly after a span, since it ends that turn.
std::vector<uint8_t> mask_tokens(const text::Tokenizer& tokenizer, std::string_view text,
                                 const std::vector<text::TokenId>& tokens, const ByteSpans& spans,
                                 const std::vector<text::TokenId>& eos_ids);

// Whether the last of `tokens` that is not white space is one of eos_ids.
bool ends_in_eos(const text::Tokenizer& tokenizer, const std::vector<text::TokenId>& tokens,
                 const std::vector<text::TokenId>& eos_ids);

}  // namespace slimexx::data
