// Parses the input as a template and renders it on a fixed conversation under small limits. Only
// Error may be thrown.
#include <nlohmann/json.hpp>

#include "slimexx/base/error.h"
#include "slimexx/text/chat_template.h"

using slimexx::Json;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Json kVariables = Json::parse(R"({
    "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "h\u00e9 \ud83d\ude00"},
                 {"role": "assistant", "content": "<think>\nr\n</think>\n\nA",
                  "tool_calls": [{"function": {"name": "f", "arguments": {"x": [1, 2.5, null, true]}}}]}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    "add_generation_prompt": true, "n": 3, "s": "a b"})");
  constexpr slimexx::text::TemplateLimits kLimits{20'000, 1 << 16, 30};
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  try {
    auto chat_template = slimexx::text::ChatTemplate::parse(source, "fuzz");
    chat_template.set_clock([] { return int64_t{1767268800}; });
    const auto out = chat_template.render(kVariables, kLimits);
    int64_t last = 0;
    for (const auto& [begin, end] : out.generation_spans) {
      if (begin < last || end < begin || end > static_cast<int64_t>(out.text.size()))
        __builtin_trap();
      last = end;
    }
  } catch (const slimexx::Error&) {
  }
  return 0;
}
