// Finds stop strings in a stream of token bytes. A string may begin and end anywhere within tokens;
// the state is one position per string (Knuth, Morris, Pratt), whatever the length of the response.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace slimexx::rollout {

class StopMatcher {
 public:
  StopMatcher() = default;
  explicit StopMatcher(const std::vector<std::string>& stops);
  bool empty() const { return patterns_.empty(); }
  // Appends bytes; true if they complete a stop string. Do not call again after that.
  bool feed(std::string_view bytes);

 private:
  struct Pattern {
    std::string text;
    // border[i]: length of the longest proper prefix of text that is a suffix of text[0..i].
    std::vector<uint32_t> border;
    uint32_t num_matched = 0;
  };
  std::vector<Pattern> patterns_;
};

}  // namespace slimexx::rollout
