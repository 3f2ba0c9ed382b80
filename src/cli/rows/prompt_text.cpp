#include "cli/rows/prompt_text.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/io/hub_names.h"

namespace slimexx::cli {
namespace {

void check_messages(const Json& messages) {
  const auto refuse = [](const std::string& what) {
    throw Error(ErrorCode::kInput, what,
                "write messages as [{\"role\": \"user\", \"content\": \"...\"}, ...]");
  };
  if (!messages.is_array() || messages.empty()) {
    refuse(fmt::format("the messages are {}, not a list of messages",
                       messages.is_array() ? "an empty list" : messages.type_name()));
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    const bool has_role =
        messages[i].is_object() && messages[i].contains("role") && messages[i]["role"].is_string();
    if (!has_role) refuse(fmt::format("message {} has no role", i));
  }
}

}  // namespace

PromptText::PromptText(const std::string& directory) : directory_(directory) {
  if (!path_exists(directory)) {
    throw Error(ErrorCode::kInput, "no such folder", io::missing_model_hint(directory), directory);
  }
  side_ = rl::load_text_side(directory);
}

std::vector<int32_t> PromptText::encode(const std::string& text) const {
  if (!side_.tokenizer) {
    throw Error(ErrorCode::kInput, "the prompt is text, but the checkpoint has no tokenizer.json",
                "add one to " + directory_);
  }
  return side_.tokenizer->encode(text);
}

std::string PromptText::render(const Json& variables) const {
  if (!side_.chat_template) {
    throw Error(ErrorCode::kInput,
                "the prompt is a list of messages, but the checkpoint has no chat template",
                "add chat_template.jinja to " + directory_);
  }
  check_messages(variables.value("messages", Json()));
  return side_.chat_template->render(variables).text;
}

}  // namespace slimexx::cli
