#include "slimexx/text/chat_template.h"

#include <ctime>
#include <exception>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/strings.h"
#include "text/jinja/interpreter.h"
#include "text/special_tokens.h"

namespace slimexx::text {
namespace {

constexpr uint64_t kMaxTemplateBytes = uint64_t{1} << 20;

constexpr const char* kDefault = "default";
constexpr const char* kToolUse = "tool_use";

struct Source {
  std::string text, where;
};
using Sources = std::map<std::string, Source, std::less<>>;

Sources read_template_files(const std::string& directory) {
  Sources sources;
  const auto read = [&](const std::string& name, const std::string& path) {
    sources[name] = {read_text_file(path, kMaxTemplateBytes), path};
  };
  const std::string main = join_path(directory, "chat_template.jinja");
  if (path_exists(main)) read(kDefault, main);
  const std::string folder = join_path(directory, "additional_chat_templates");
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (entry.path().extension() == ".jinja") read(entry.path().stem(), entry.path());
  return sources;
}

// Reads "chat_template" from tokenizer_config.json.
Sources read_config_templates(const Json& config, const std::string& path) {
  const std::string where = path + ": chat_template";
  const auto it = config.find("chat_template");
  if (it == config.end() || it->is_null()) return {};
  Sources sources;
  const auto add = [&](const Json& name, const Json& text) {
    if (!name.is_string() || !text.is_string()) {
      throw Error(ErrorCode::kInput, "a chat template in the list has no name or no text",
                  "write [{\"name\": \"default\", \"template\": \"...\"}]", where);
    }
    const auto& key = name.get_ref<const std::string&>();
    sources[key] = {text.get<std::string>(),
                    key == kDefault ? where : fmt::format("{} \"{}\"", where, key.substr(0, 100))};
  };
  if (it->is_array()) {
    for (const Json& entry : *it)
      add(entry.is_object() ? entry.value("name", Json()) : Json(),
          entry.is_object() ? entry.value("template", Json()) : Json());
  } else if (it->is_object()) {
    for (const auto& [name, text] : it->items()) add(name, text);
  } else {
    add(kDefault, *it);
  }
  return sources;
}

std::unique_ptr<jinja::Program> compile(std::string_view source, const std::string& where) {
  if (source.size() > kMaxTemplateBytes) {
    throw Error(ErrorCode::kInput,
                fmt::format("a template of {} bytes, but the limit is {}", source.size(),
                            kMaxTemplateBytes),
                "check that this is a chat template: chat templates usually have a few kilobytes",
                where);
  }
  if (!is_valid_utf8(source))
    throw Error(ErrorCode::kInput, "the template is not valid UTF-8", "save it as UTF-8", where);
  return jinja::parse_program(source, where);
}

// Variables that transformers passes to every template, even if the caller does not give them.
Json default_variables() {
  return {{"tools", nullptr}, {"documents", nullptr}, {"add_generation_prompt", false}};
}

}  // namespace

// A compiled template, or the error of its compilation: an unused template may be broken.
struct Compiled {
  std::unique_ptr<jinja::Program> program;
  std::exception_ptr fault;

  const jinja::Program& get() const {
    if (fault) std::rethrow_exception(fault);
    return *program;
  }
};

struct ChatTemplate::Impl {
  std::map<std::string, Compiled, std::less<>> templates;  // by name
  std::string where;  // name of the whole set of templates, for errors
  Json defaults = default_variables();
  std::function<int64_t()> clock = [] { return static_cast<int64_t>(std::time(nullptr)); };

  const jinja::Program& choose(const Json& variables) const;
  std::string list_names() const;
};

std::string ChatTemplate::Impl::list_names() const {
  std::string names;
  for (const auto& [name, compiled] : templates)
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", name.substr(0, 100));
  return names;
}

const jinja::Program& ChatTemplate::Impl::choose(const Json& variables) const {
  const auto tools = variables.find("tools");
  auto found = templates.end();
  if (tools != variables.end() && !tools->is_null()) found = templates.find(kToolUse);
  if (found == templates.end()) found = templates.find(kDefault);
  if (found != templates.end()) return found->second.get();
  throw Error(ErrorCode::kInput, "no chat template is named \"default\"",
              fmt::format("available: {}; rename one of them to \"default\", or choose one with "
                          "apply_chat_template_kwargs: {{chat_template: NAME}}",
                          list_names()),
              where);
}

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

ChatTemplate ChatTemplate::parse(std::string_view source, const std::string& where) {
  auto impl = std::make_unique<Impl>();
  impl->where = where;
  impl->templates[kDefault].program = compile(source, where);
  return ChatTemplate(std::move(impl));
}

std::unique_ptr<ChatTemplate> ChatTemplate::find(const std::string& checkpoint_directory) {
  const std::string config_path = join_path(checkpoint_directory, "tokenizer_config.json");
  Sources sources = read_template_files(checkpoint_directory);
  if (sources.empty() && path_exists(config_path)) {
    const Json config = parse_json_file(config_path, uint64_t{1} << 28);
    if (config.is_object()) sources = read_config_templates(config, config_path);
  }
  Json tokens = read_special_tokens(checkpoint_directory);
  if (sources.empty()) return nullptr;
  auto impl = std::make_unique<Impl>();
  impl->where = checkpoint_directory;
  for (const auto& [name, source] : sources) {
    Compiled& compiled = impl->templates[name];
    try {
      compiled.program = compile(source.text, source.where);
    } catch (const Error&) {
      if (name == kDefault) throw;
      compiled.fault = std::current_exception();
    }
  }
  for (const auto& [name, value] : impl->defaults.items()) tokens[name] = value;
  impl->defaults = std::move(tokens);
  return std::unique_ptr<ChatTemplate>(new ChatTemplate(std::move(impl)));
}

ChatTemplate ChatTemplate::load(const std::string& checkpoint_directory) {
  auto found = find(checkpoint_directory);
  if (found) return std::move(*found);
  throw Error(ErrorCode::kInput, "no chat template",
              "add a chat_template.jinja to the folder, or turn off apply_chat_template",
              checkpoint_directory);
}

RenderedText ChatTemplate::render(const Json& variables, const TemplateLimits& limits) const {
  if (!variables.is_object()) {
    throw Error(ErrorCode::kInput, "the variables of a template must be an object",
                "pass {\"messages\": [...]}", impl_->where);
  }
  const auto run = [&](const jinja::Program& program, const Json& given) {
    return jinja::Interpreter(program, limits, impl_->clock).render(given, impl_->defaults);
  };
  const auto wish = variables.find("chat_template");
  if (wish == variables.end() || wish->is_null()) return run(impl_->choose(variables), variables);
  const std::string text = wish->is_string() ? wish->get<std::string>() : wish->dump();
  const auto named = impl_->templates.find(text);
  const bool is_named = named != impl_->templates.end();
  if (!is_named && text.find("{{") == text.npos && text.find("{%") == text.npos) {
    throw Error(ErrorCode::kUsage,
                fmt::format("no chat template is named \"{}\"", text.substr(0, 100)),
                "available: " + impl_->list_names(), impl_->where);
  }
  Json rest = variables;
  rest.erase("chat_template");
  return is_named ? run(named->second.get(), rest) : run(*compile(text, "chat_template"), rest);
}

void ChatTemplate::set_clock(std::function<int64_t()> unix_seconds) {
  impl_->clock = std::move(unix_seconds);
}

}  // namespace slimexx::text
