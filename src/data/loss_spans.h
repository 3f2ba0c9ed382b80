// Which bytes of a rendered conversation an assistant said, and which tokens those are.
#pragma once
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "slimexx/base/json.h"
#include "slimexx/text/chat_template.h"
#include "slimexx/text/tokenizer.h"

namespace slimexx::data {

using ByteSpans = std::vector<std::pair<int64_t, int64_t>>;  // [begin, end), in order, apart

struct LearntText {
  std::string text;
  ByteSpans spans;
};

// Renders the conversation and finds the spans of the assistant's turns that are learnt.
LearntText render_learnt(const text::ChatTemplate& chat_template, const Json& messages,
                         const Json& tools, const Json* kwargs);

// 1 for each of `tokens`, those of encode(text), whose first byte lies within a span.
std::vector<uint8_t> mask_tokens(const text::Tokenizer& tokenizer, std::string_view text,
                                 const std::vector<text::TokenId>& tokens, const ByteSpans& spans);

}  // namespace slimexx::data
