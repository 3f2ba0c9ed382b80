// Checks the conversation in a row, and renders it by a chat template.
#pragma once
#include <string>

#include "slimexx/base/json.h"
#include "slimexx/text/chat_template.h"

namespace slimexx::data {

// The value under `key`. If it is missing, throws Error(kInput) naming the row's keys.
const Json& require_key(const Json& row, const std::string& key);

// The string under `key`; throws Error(kInput) for any other value. If the key may hold messages,
// the hint names the chat template.
const std::string& require_text(const Json& row, const std::string& key, bool may_be_messages);

// Turns a string into one user message and keeps a list of messages, each an object with a "role".
// Throws Error(kInput) for anything else.
Json read_messages(const Json& value, const std::string& key);

// The row's tools as a list, from a list or a JSON string; null if it has none.
Json read_tools(const Json& row, const std::string& tool_key);

// Renders messages with tools (if not null) and kwargs (an object or null).
text::RenderedText render_conversation(const text::ChatTemplate& chat_template,
                                       const Json& messages, const Json& tools, const Json* kwargs,
                                       bool add_generation_prompt);

// Throws Error(kUsage) unless kwargs is null or an object without reserved keys such as "messages".
void check_template_kwargs(const Json* kwargs);

}  // namespace slimexx::data
