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
  // The template of a checkpoint folder: chat_template.jinja, else "chat_template" of
  // tokenizer_config.json (a string, or the list entry named "default"); and bos_token, eos_token
  // and the other *_token strings of tokenizer_config.json as default variables.
  static ChatTemplate load(const std::string& checkpoint_directory);

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // Renders with `variables`, an object: messages, tools, add_generation_prompt, bos_token, ....
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
