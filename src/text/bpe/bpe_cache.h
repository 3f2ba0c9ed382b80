// Caches the ids of short words, per thread: most words of a text repeat.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "slimexx/text/tokenizer.h"

namespace slimexx::text {

class WordCache {
 public:
  static constexpr size_t kMaxWordBytes = 24;
  static constexpr size_t kMaxIds = 7;

  struct Slot {
    std::array<uint64_t, 3> word{};  // zero padded
    uint32_t owner = 0;              // serial number of the model; 0 if the slot is empty
    uint8_t bytes = 0;
    uint8_t count = 0;
    std::array<TokenId, kMaxIds> ids{};
  };

  // The slot for a word of at most kMaxWordBytes; `hit` tells whether it holds the ids of that
  // word. After a miss the slot holds the new word, but has no owner until store().
  Slot& find(std::string_view word, uint32_t owner, bool& hit);
  static void store(Slot& slot, uint32_t owner, const TokenId* ids, size_t count);

  static WordCache& of_this_thread();

 private:
  static constexpr size_t kSlots = 1 << 15;
  std::vector<Slot> slots_ = std::vector<Slot>(kSlots);
};

}  // namespace slimexx::text
