#include "rollout/stop_matcher.h"

#include "slimexx/base/check.h"

namespace slimexx::rollout {
namespace {

// The input so far ends with the first `matched` bytes of `text`. Returns the length of the longest
// prefix of `text` that the input ends with after `byte`.
uint32_t advance(const std::string& text, const std::vector<uint32_t>& border, uint32_t matched,
                 char byte) {
  while (matched > 0 && text[matched] != byte) matched = border[matched - 1];
  return text[matched] == byte ? matched + 1 : 0;
}

}  // namespace

StopMatcher::StopMatcher(const std::vector<std::string>& stops) {
  for (const std::string& stop : stops) {
    SLX_CHECK(!stop.empty(), "an empty stop string");
    Pattern pattern{.text = stop, .border = {0}};
    pattern.border.reserve(stop.size());
    for (size_t i = 1; i < stop.size(); ++i)
      pattern.border.push_back(advance(stop, pattern.border, pattern.border.back(), stop[i]));
    patterns_.push_back(std::move(pattern));
  }
}

bool StopMatcher::feed(std::string_view bytes) {
  for (Pattern& pattern : patterns_) {
    for (const char byte : bytes) {
      pattern.num_matched = advance(pattern.text, pattern.border, pattern.num_matched, byte);
      if (pattern.num_matched == pattern.text.size()) return true;
    }
  }
  return false;
}

}  // namespace slimexx::rollout
