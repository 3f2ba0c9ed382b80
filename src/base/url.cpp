#include "slimexx/base/url.h"

#include <algorithm>

namespace slimexx {
namespace {

constexpr std::string_view kMark = "://";

bool ends_address(char c) {
  return static_cast<unsigned char>(c) <= ' ' || c == '"' || c == '\'' || c == '`' || c == '<' ||
         c == '>';
}

}  // namespace

std::string hide_secrets(std::string_view address) {
  const size_t mark = address.find(kMark);
  const size_t begin = mark == std::string_view::npos ? 0 : mark + kMark.size();
  std::string out(address.substr(0, begin));
  std::string_view rest = address.substr(begin);
  // A password may contain characters that should have been escaped, so hide everything before the
  // last @.
  if (const size_t at = rest.rfind('@'); at != std::string_view::npos) {
    out += kHiddenPart;
    rest = rest.substr(at);
  }
  const size_t query = std::min(rest.find('?'), rest.find('#'));
  out += rest.substr(0, query);
  if (query < rest.size()) (out += rest[query]) += kHiddenPart;
  return out;
}

std::string hide_secrets_in_text(std::string_view text) {
  std::string out;
  for (size_t mark = text.find(kMark); mark != std::string_view::npos; mark = text.find(kMark)) {
    const size_t begin = mark + kMark.size();
    const auto* end = std::find_if(text.begin() + begin, text.end(), ends_address);
    const auto length = static_cast<size_t>(end - text.begin()) - begin;
    out += text.substr(0, mark);
    out += hide_secrets(text.substr(mark, kMark.size() + length));
    text.remove_prefix(begin + length);
  }
  return out + std::string(text);
}

}  // namespace slimexx
