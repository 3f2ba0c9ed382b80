// \boxed{...} and \fbox{...} by matched braces.
#include "reward/answers/boxed.h"

namespace slimexx::reward {

namespace {

// For every '{' the position of its '}', npos if it never closes. \{ and \} do not count.
std::vector<size_t> match_braces(std::string_view text) {
  std::vector<size_t> partner(text.size(), std::string_view::npos), open;
  for (size_t at = 0; at < text.size(); ++at) {
    const bool escaped = at > 0 && text[at - 1] == '\\' && !(at > 1 && text[at - 2] == '\\');
    if (escaped) continue;
    if (text[at] == '{') open.push_back(at);
    if (text[at] == '}' && !open.empty()) {
      partner[open.back()] = at;
      open.pop_back();
    }
  }
  return partner;
}

}  // namespace

std::vector<BoxedSpan> find_boxes(std::string_view text, size_t* unclosed) {
  const std::vector<size_t> partner = match_braces(text);
  std::vector<BoxedSpan> boxes;
  if (unclosed) *unclosed = std::string_view::npos;
  for (size_t at = text.find('\\'); at != std::string_view::npos; at = text.find('\\', at + 1)) {
    size_t open = at + 1;
    if (text.substr(open, 5) == "boxed") {
      open += 5;
    } else if (text.substr(open, 4) == "fbox") {
      open += 4;
    } else {
      continue;
    }
    while (open < text.size() && text[open] == ' ') ++open;
    if (open >= text.size() || text[open] != '{') continue;
    const size_t close = partner[open];
    if (close == std::string_view::npos) {
      if (unclosed) *unclosed = open + 1;
      continue;
    }
    boxes.push_back({at, open + 1, close, close + 1});
    if (unclosed) *unclosed = std::string_view::npos;
    at = close;
  }
  return boxes;
}

std::optional<std::string> last_boxed(std::string_view text) {
  const auto boxes = find_boxes(text);
  if (boxes.empty()) return std::nullopt;
  return std::string(text.substr(boxes.back().begin, boxes.back().end - boxes.back().begin));
}

}  // namespace slimexx::reward
