// Jinja chat templates. The interpreter sees only plain JSON values (no host objects, no attribute
// walk) and has limits for work, depth and size. The interpreter gives templates the environment of
// transformers: trim_blocks, lstrip_blocks, loop controls, {% generation %}, tojson,
// raise_exception, strftime_now. Immutable after parsing; render may be called from any thread.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slimexx/base/json.h"

namespace slimexx::text {

struct TemplateLimits {
  // One unit is about 50 ns: a node, an element, a few characters, a line of bytes. Each byte of
  // the variables adds two units to this limit.
  int64_t max_work = 20'000'000;
  int64_t max_output_bytes = 64 << 20;  // also the limit for any single intermediate string or list
  int max_depth = 200;                  // nested expressions, calls, macros
};

struct RenderedText {
  std::string text;
  // Byte ranges [begin, end) of `text` inside {% generation %} blocks, in order: the text of the
  // assistant. SFT turns them into its loss mask.
  std::vector<std::pair<int64_t, int64_t>> generation_spans;
};

class ChatTemplate {
 public:
  // Throws Error(kInput) with `where` and the template's line on syntax errors.
  static ChatTemplate parse(std::string_view source, const std::string& where);
  // Loads the templates of a checkpoint folder by the rules of transformers: chat_template.jinja
  // and additional_chat_templates/NAME.jinja; without any of these, "chat_template" of
  // tokenizer_config.json (a text, a list of {"name", "template"}, or an object that maps names to
  // templates). The folder's bos_token, eos_token and other named special tokens become default
  // variables. Null if there is no template.
  static std::unique_ptr<ChatTemplate> find(const std::string& checkpoint_directory);
  // Like find, but throws Error(kInput) if there is no template.
  static ChatTemplate load(const std::string& checkpoint_directory);

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // Renders with `variables`, an object: messages, tools, add_generation_prompt, bos_token, .... If
  // there are several templates, "tool_use" is used if tools are given (even an empty list),
  // otherwise "default"; the variable "chat_template" names another one, or is a template itself.
  // As in transformers, the default for tools and documents is none, and for add_generation_prompt
  // false. raise_exception() in the template and run-time faults throw Error(kInput) with the line.
  RenderedText render(const Json& variables, const TemplateLimits& limits = {}) const;

  // Sets the clock of strftime_now(format), for reproducible tests. Default: the system clock.
  void set_clock(std::function<int64_t()> unix_seconds);

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace slimexx::text
