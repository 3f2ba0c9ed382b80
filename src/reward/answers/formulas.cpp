#include "reward/answers/formulas.h"

#include <algorithm>
#include <string>

#include "reward/answers/text_scan.h"

namespace slimexx::reward {
namespace {

constexpr size_t kNone = std::string_view::npos;

// Finds `close` in `text` from `from` on. Remembers a failed search, so that many unclosed
// delimiters take linear time in total.
class Closer {
 public:
  Closer(std::string_view text, std::string close) : text_(text), close_(std::move(close)) {}

  size_t find(size_t from) {
    if (none_) return kNone;
    size_t end = text_.find(close_, from);
    while (end != kNone && close_[0] == '$' && end > 0 && text_[end - 1] == '\\') {
      end = text_.find(close_, end + 1);
    }
    none_ = end == kNone;
    return end;
  }
  size_t size() const { return close_.size(); }

 private:
  std::string_view text_;
  std::string close_;
  bool none_ = false;
};

// Whether the text between two dollars is a sum of money: "$5 for the pen and $", "$40 + $" before
// 24.
bool is_money(std::string_view inside, char after) {
  if (inside.empty() || !is_digit(inside[0])) return false;
  return is_digit(after) || (std::count(inside.begin(), inside.end(), ' ') > 2 &&
                             inside.find('\\') == kNone && inside.find('=') == kNone);
}

struct Delimiter {
  std::string open;
  Closer close;
  bool environment = false;  // the content includes its name
};

std::vector<Delimiter> delimiters_of(std::string_view text) {
  std::vector<Delimiter> all = {
      {"$$", {text, "$$"}}, {"$", {text, "$"}}, {"\\(", {text, "\\)"}}, {"\\[", {text, "\\]"}}};
  for (const char* name :
       {"equation", "equation*", "align", "align*", "aligned", "gather", "gather*", "math"}) {
    const std::string braced = "{" + std::string(name) + "}";
    all.push_back({"\\begin" + braced, {text, "\\end" + braced}, true});
  }
  return all;
}

}  // namespace

std::vector<Span> find_formulas(std::string_view text) {
  std::vector<Delimiter> delimiters = delimiters_of(text);
  std::vector<Span> spans;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '$' && text[at] != '\\') continue;
    const auto found = std::find_if(delimiters.begin(), delimiters.end(), [&](const Delimiter& d) {
      return text.substr(at, d.open.size()) == d.open;
    });
    if (found == delimiters.end()) {
      ++at;  // an escaped character
      continue;
    }
    const size_t begin = at + found->open.size(), end = found->close.find(begin);
    if (end == kNone) continue;
    const size_t stop = end + found->close.size();
    const char after = stop < text.size() ? text[stop] : ' ';
    if (text[at] == '$' && is_money(text.substr(begin, end - begin), after)) continue;
    if (found->environment) {
      spans.push_back({at, at, stop, stop});
    } else if (end > begin) {
      spans.push_back({at, begin, end, stop});
    }
    at = stop - 1;
  }
  return spans;
}

}  // namespace slimexx::reward
