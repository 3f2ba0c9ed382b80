// Drafts by prompt lookup (n-grams), without a model: finds the latest place in the sequence itself
// or other samples of its group where the newest tokens occurred, and proposes the tokens that
// followed.
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
  // Lengths of the runs to look up, longest first.
  static constexpr std::array<size_t, 2> kLengths = {5, 2};

  // Sequences are borrowed from start to finish. Their tokens stay in the index until the group's
  // last sequence finishes.
  void start(const Sequence* sequence);
  void finish(const Sequence* sequence);
  // Returns at most `most` tokens. All tokens of the sequence must be known. Takes time only for
  // tokens that are new in the group.
  std::vector<TokenId> guess(const Sequence& sequence, int64_t most);

 private:
  struct Text {
    const Sequence* running = nullptr;
    std::vector<TokenId> finished;
    size_t num_indexed = 0;  // runs that end before this token are in the index
    std::span<const TokenId> tokens() const;
  };
  struct Place {
    uint32_t text = 0, next = 0;  // `next`: index of the token after the run
  };
  struct Group {
    std::vector<Text> texts;
    size_t num_running = 0;
    // Hash of a run -> its latest place.
    std::array<std::unordered_map<uint64_t, Place>, kLengths.size()> places;
  };
  static void index_new_tokens(Group& group);

  using GroupName = std::pair<uint64_t, uint64_t>;  // seed and group of RandomName
  std::map<GroupName, Group> groups_;
};

}  // namespace slimexx::rollout
