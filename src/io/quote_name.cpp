#include "io/quote_name.h"

#include "slimexx/base/strings.h"

namespace slimexx::io {

std::string quote_name(std::string_view name) {
  constexpr size_t kShown = 120;
  std::string text = replace_invalid_utf8(name.substr(0, kShown));
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  if (name.size() > kShown) text += "...";
  return '"' + text + '"';
}

}  // namespace slimexx::io
