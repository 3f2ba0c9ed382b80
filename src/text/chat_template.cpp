#include "slimexx/text/chat_template.h"

#include <ctime>
#include <nlohmann/json.hpp>

#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/strings.h"
#include "text/jinja/interpreter.h"

namespace slimexx::text {
namespace {

constexpr uint64_t kMaxTemplateBytes = uint64_t{1} << 20;

// A token is a string, or an object that holds it under "content".
Json collect_special_tokens(const Json& config) {
  Json tokens = Json::object();
  constexpr std::string_view kSuffix = "_token";
  for (const auto& [key, value] : config.items()) {
    if (key.size() <= kSuffix.size() || key.substr(key.size() - kSuffix.size()) != kSuffix)
      continue;
    const Json* text = &value;
    if (value.is_object() && value.contains("content")) text = &value["content"];
    if (text->is_string()) tokens[key] = *text;
  }
  return tokens;
}

std::string find_template(const Json& config, const std::string& where) {
  const auto it = config.find("chat_template");
  if (it != config.end() && it->is_string()) return it->get<std::string>();
  if (it != config.end() && it->is_array()) {
    for (const Json& entry : *it) {
      if (entry.is_object() && entry.value("name", Json()) == "default" &&
          entry.value("template", Json()).is_string()) {
        return entry["template"].get<std::string>();
      }
    }
    throw Error(ErrorCode::kInput,
                "\"chat_template\" is a list without a template named \"default\"",
                "name one of them \"default\"", where);
  }
  throw Error(ErrorCode::kInput, "no chat template",
              "put a chat_template.jinja beside it, or turn apply_chat_template off", where);
}

// What transformers passes to every template, given or not.
Json default_variables() {
  return {{"tools", nullptr}, {"documents", nullptr}, {"add_generation_prompt", false}};
}

}  // namespace

struct ChatTemplate::Impl {
  std::unique_ptr<jinja::Program> program;
  Json defaults = default_variables();
  std::function<int64_t()> clock = [] { return static_cast<int64_t>(std::time(nullptr)); };
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

ChatTemplate ChatTemplate::parse(std::string_view source, const std::string& where) {
  if (source.size() > kMaxTemplateBytes) {
    throw Error(
        ErrorCode::kInput,
        fmt::format("a template of {} bytes, the limit is {}", source.size(), kMaxTemplateBytes),
        "is it a chat template? real ones have some kilobytes", where);
  }
  if (!is_valid_utf8(source))
    throw Error(ErrorCode::kInput, "the template is not valid UTF-8", "save it as UTF-8", where);
  auto impl = std::make_unique<Impl>();
  impl->program = jinja::parse_program(source, where);
  return ChatTemplate(std::move(impl));
}

ChatTemplate ChatTemplate::load(const std::string& checkpoint_directory) {
  const std::string config_path = join_path(checkpoint_directory, "tokenizer_config.json");
  const std::string template_path = join_path(checkpoint_directory, "chat_template.jinja");
  const bool own_file = path_exists(template_path);
  Json config = Json::object();
  if (!own_file || path_exists(config_path))
    config = parse_json_file(config_path, uint64_t{1} << 28);
  if (!config.is_object())
    throw Error(ErrorCode::kInput, "not a JSON object", "fetch the file again", config_path);
  ChatTemplate result =
      own_file ? parse(read_text_file(template_path, kMaxTemplateBytes), template_path)
               : parse(find_template(config, config_path), config_path + ": chat_template");
  result.impl_->defaults.update(collect_special_tokens(config));
  return result;
}

RenderedText ChatTemplate::render(const Json& variables, const TemplateLimits& limits) const {
  if (!variables.is_object()) {
    throw Error(ErrorCode::kInput, "the variables of a template must be an object",
                "pass {\"messages\": [...]}", impl_->program->where);
  }
  return jinja::Interpreter(*impl_->program, limits, impl_->clock)
      .render(variables, impl_->defaults);
}

void ChatTemplate::set_clock(std::function<int64_t()> unix_seconds) {
  impl_->clock = std::move(unix_seconds);
}

}  // namespace slimexx::text
