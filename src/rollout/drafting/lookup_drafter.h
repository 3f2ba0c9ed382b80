// Guesses what follows a sequence's newest tokens: what followed them where they stood last, in the
// sequence itself or in other samples of its group. No model is asked (prompt lookup, n-grams).
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rollout/scheduling/sequence.h"

namespace slimexx::rollout {

class LookupDrafter {
 public:
  // Runs of so many tokens are looked for, the longer one first.
  static constexpr std::array<size_t, 2> kLengths = {5, 2};

  // Sequences are the caller's, from start to finish. Their tokens stay until the group's last
  // sequence is finished.
  void start(const Sequence* sequence);
  void finish(const Sequence* sequence);
  // At most `most` tokens. All the sequence's tokens must be known. Takes time for tokens that are
  // new in the group, not for those that are old.
  std::vector<TokenId> guess(const Sequence& sequence, int64_t most);

 private:
  struct Text {
    const Sequence* running = nullptr;
    std::vector<TokenId> finished;
    size_t num_indexed = 0;  // tokens before which runs are in the index
    std::span<const TokenId> tokens() const;
  };
  struct Place {
    uint32_t text = 0, next = 0;  // the token behind a run
  };
  struct Group {
    std::vector<Text> texts;
    size_t num_running = 0;
    // By hash of a run, where it stood last.
    std::array<std::unordered_map<uint64_t, Place>, kLengths.size()> places;
  };
  static void index_new_tokens(Group& group);

  using GroupName = std::pair<uint64_t, uint64_t>;  // seed and group of RandomName
  std::map<GroupName, Group> groups_;
};

}  // namespace slimexx::rollout
