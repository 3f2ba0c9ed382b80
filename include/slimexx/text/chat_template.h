// Jinja chat templates, by an interpreter that sees plain JSON values only (no host objects, no
// attribute walk), with limits of work, depth and size, in the environment that transformers gives
// templates: trim_blocks, lstrip_blocks, loop controls, {% generation %}, tojson, raise_exception,
// strftime_now. Immutable after parsing; render may be called from any thread.
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
  // Units of some 50 ns: a node, an element, a few characters, a line of bytes. On top of them
  // come two for each byte of the variables.
  int64_t max_work = 20'000'000;
  int64_t max_output_bytes = 64 << 20;  // also the limit of any one intermediate string or list
  int max_depth = 200;                  // nested expressions, calls, macros
};

struct RenderedText {
  std::string text;
  // Byte ranges [begin, end) of `text` inside {% generation %} blocks, in order: the assistant's
  // text. SFT makes its loss mask of them.
  std::vector<std::pair<int64_t, int64_t>> generation_spans;
};

class ChatTemplate {
 public:
  // Throws Error(kInput) with `where` and the template's line for syntax errors.
  static ChatTemplate parse(std::string_view source, const std::string& where);
  // The templates of a checkpoint folder, chosen among as by transformers: chat_template.jinja and
  // additional_chat_templates/NAME.jinja; without any of these, "chat_template" of
  // tokenizer_config.json (a text, a list of {"name", "template"}, or an object of both). The
  // default variables have bos_token, eos_token and the other named special tokens of the folder.
  // Null if there is none.
  static std::unique_ptr<ChatTemplate> find(const std::string& checkpoint_directory);
  // The same; throws Error(kInput) if there is none.
  static ChatTemplate load(const std::string& checkpoint_directory);

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // Renders with `variables`, an object: messages, tools, add_generation_prompt, bos_token, ....
  // Of several templates, "tool_use" is taken if tools are given (an empty list is), else
  // "default"; "chat_template" among the variables names another one, or is a template itself.
  // As with transformers, tools and documents are none and add_generation_prompt is false where
  // they are not given.
  // raise_exception() in the template and run-time faults throw Error(kInput) with the line.
  RenderedText render(const Json& variables, const TemplateLimits& limits = {}) const;

  // The clock of strftime_now(format), the system's by default. For reproducible tests.
  void set_clock(std::function<int64_t()> unix_seconds);

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace slimexx::text
