#include "data/conversation.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "slimexx/base/error.h"

namespace slimexx::data {

const Json& require_key(const Json& row, const std::string& key) {
  const auto it = row.find(key);
  if (it != row.end()) return *it;
  std::vector<std::string> keys;
  for (const auto& [name, value] : row.items()) keys.push_back("'" + name + "'");
  throw Error(ErrorCode::kInput, fmt::format("the row has no key '{}'", key),
              keys.empty() ? "the row is empty"
                           : fmt::format("it has {}; set the name of the key to one of these",
                                         fmt::join(keys, ", ")));
}

const std::string& require_text(const Json& row, const std::string& key, bool may_be_messages) {
  const Json& value = require_key(row, key);
  if (value.is_string()) return value.get_ref<const std::string&>();
  throw Error(ErrorCode::kInput, fmt::format("'{}' is {}, not text", key, value.type_name()),
              may_be_messages && value.is_array() ? "set apply_chat_template for lists of messages"
                                                  : "write text there, in quotes");
}

Json read_messages(const Json& value, const std::string& key) {
  if (value.is_string()) return Json::array({Json{{"role", "user"}, {"content", value}}});
  if (!value.is_array() || value.empty()) {
    throw Error(ErrorCode::kInput,
                fmt::format("'{}' is {}, neither text nor a list of messages", key,
                            value.is_array() ? "an empty list" : value.type_name()),
                "write \"...\" or [{\"role\": \"user\", \"content\": \"...\"}]");
  }
  for (size_t i = 0; i < value.size(); ++i) {
    const auto role = value[i].is_object() ? value[i].find("role") : value[i].end();
    if (!value[i].is_object() || role == value[i].end() || !role->is_string()) {
      throw Error(ErrorCode::kInput, fmt::format("message {} of '{}' has no role", i, key),
                  "a message is {\"role\": \"user\", \"content\": \"...\"}");
    }
  }
  return value;
}

Json read_tools(const Json& row, const std::string& tool_key) {
  const auto it = row.find(tool_key);
  if (tool_key.empty() || it == row.end() || it->is_null()) return nullptr;
  Json tools =
      it->is_string() ? parse_json(it->get<std::string>(), "", WideIntegers::kRefuse) : *it;
  if (!tools.is_array()) {
    throw Error(ErrorCode::kInput,
                fmt::format("'{}' is {}, not a list of tools", tool_key, tools.type_name()),
                "write [{\"type\": \"function\", \"function\": {...}}]");
  }
  return tools;
}

text::RenderedText render_conversation(const text::ChatTemplate& chat_template,
                                       const Json& messages, const Json& tools, const Json* kwargs,
                                       bool add_generation_prompt) {
  Json variables = {{"messages", messages}, {"add_generation_prompt", add_generation_prompt}};
  if (!tools.is_null()) variables["tools"] = tools;
  if (kwargs) variables.update(*kwargs);
  return chat_template.render(variables);
}

void check_template_kwargs(const Json* kwargs) {
  if (!kwargs || kwargs->is_null()) return;
  if (!kwargs->is_object()) {
    throw Error(ErrorCode::kUsage, "apply_chat_template_kwargs is not an object",
                "write a mapping, such as {enable_thinking: false}");
  }
  for (const char* key : {"messages", "tools", "add_generation_prompt"}) {
    if (kwargs->contains(key)) {
      throw Error(ErrorCode::kUsage, fmt::format("apply_chat_template_kwargs cannot set '{}'", key),
                  "the program sets it from the row");
    }
  }
}

}  // namespace slimexx::data
