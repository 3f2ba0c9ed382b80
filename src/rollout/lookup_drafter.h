// Guesses what follows a sequence's newest tokens: what followed them where they stood last, in the
// sequence itself or in other samples of its group. No model is asked (prompt lookup, n-grams).
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "rollout/sequence.h"

namespace slimexx::rollout {

// At most `most` tokens behind the longest run of up to kLongest tokens that ends `tokens` and
// stands in one of `texts`, or earlier in `tokens`: of the longest the first text's latest. Empty
// where not even kShortest tokens are found.
inline constexpr size_t kShortestMatch = 2, kLongestMatch = 6;
std::vector<TokenId> look_up(std::span<const TokenId> tokens,
                             std::span<const std::span<const TokenId>> texts, int64_t most);

class LookupDrafter {
 public:
  // Sequences are the caller's, from start to finish. Their tokens stay until the group's last
  // sequence is finished.
  void start(const Sequence* sequence);
  void finish(const Sequence* sequence);
  // All the sequence's tokens must be known.
  std::vector<TokenId> guess(const Sequence& sequence, int64_t most) const;

 private:
  struct Group {
    std::vector<const Sequence*> running;
    std::vector<std::vector<TokenId>> finished;
  };
  using GroupName = std::pair<uint64_t, uint64_t>;  // seed and group of RandomName
  std::map<GroupName, Group> groups_;
};

}  // namespace slimexx::rollout
