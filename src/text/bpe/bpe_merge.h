// The merge step of byte-pair encoding: the ranked pairs and two ways to apply them.
#pragma once
#include <cstdint>
#include <vector>

#include "slimexx/text/tokenizer.h"

namespace slimexx::text {

inline constexpr uint32_t kNoRank = UINT32_MAX;

struct Merge {
  uint32_t rank = kNoRank;
  TokenId merged = -1;
};

// Maps (left id, right id) to a merge; a hash table with open addressing.
class MergeTable {
 public:
  explicit MergeTable(size_t merge_count);
  // A pair that is inserted twice keeps the later rank, as in the reference implementation.
  void insert(TokenId left, TokenId right, Merge merge);
  Merge find(TokenId left, TokenId right) const {
    const uint64_t key = make_key(left, right);
    for (size_t i = start(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return slots_[i].merge;
      if (slots_[i].key == kEmpty) return {};
    }
  }

 private:
  static constexpr uint64_t kEmpty = UINT64_MAX;
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge;
  };
  static uint64_t make_key(TokenId left, TokenId right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  size_t start(uint64_t key) const { return (key * 0x9E3779B97F4A7C15u >> 20) & mask_; }
  std::vector<Slot> slots_;
  size_t mask_;
};

// Merges in ids[first..] the pair of lowest rank (the leftmost if several are equal) until no pair
// has a rank. O(n log n) time for long words.
void merge_symbols(const MergeTable& table, std::vector<TokenId>& ids, size_t first);

}  // namespace slimexx::text
