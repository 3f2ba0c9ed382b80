// Conversations of a row, checked, and their rendering by a chat template.
#pragma once
#include <string>

#include "slimexx/base/json.h"
#include "slimexx/text/chat_template.h"

namespace slimexx::data {

// The value under `key`; throws Error(kInput) naming the keys that the row has.
const Json& require_key(const Json& row, const std::string& key);

// The text under `key`; throws Error(kInput) for what is none. The hint names the chat template
// where the key may hold messages.
const std::string& require_text(const Json& row, const std::string& key, bool may_be_messages);

// A string as one user message; a list of messages as it is, each an object with a "role". Throws
// Error(kInput) for anything else.
Json read_messages(const Json& value, const std::string& key);

// The row's tools as a list, out of a list or a string of JSON; null if it has none.
Json read_tools(const Json& row, const std::string& tool_key);

// Renders messages with tools (if not null) and kwargs (an object or null).
text::RenderedText render_conversation(const text::ChatTemplate& chat_template,
                                       const Json& messages, const Json& tools, const Json* kwargs,
                                       bool add_generation_prompt);

// Throws Error(kUsage) unless kwargs is null or an object without "messages" and its like.
void check_template_kwargs(const Json* kwargs);

}  // namespace slimexx::data
