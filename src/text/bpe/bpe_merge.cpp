#include "text/bpe/bpe_merge.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>

namespace slimexx::text {
namespace {

// Up to this many symbols, scanning for the lowest rank is faster than a heap.
constexpr size_t kShortWord = 48;

size_t merge_short(const MergeTable& table, TokenId* ids, size_t n) {
  std::array<Merge, kShortWord> pairs;
  for (size_t i = 0; i + 1 < n; ++i) pairs[i] = table.find(ids[i], ids[i + 1]);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i) {
      if (pairs[i].rank < pairs[best].rank) best = i;
    }
    if (pairs[best].rank == kNoRank) break;
    ids[best] = pairs[best].merged;
    for (size_t i = best + 1; i + 1 < n; ++i) {
      ids[i] = ids[i + 1];
      pairs[i] = pairs[i + 1];
    }
    --n;
    if (best + 1 < n) pairs[best] = table.find(ids[best], ids[best + 1]);
    if (best > 0) pairs[best - 1] = table.find(ids[best - 1], ids[best]);
  }
  return n;
}

// A doubly linked list of symbols and a heap of (rank, position). An entry of the heap is stale,
// and ignored, if the pair at its position now has another rank.
class LongWord {
 public:
  LongWord(const MergeTable& table, const TokenId* ids, size_t n) : table_(table), symbols_(n) {
    for (uint32_t i = 0; i < n; ++i) {
      symbols_[i].id = ids[i];
      symbols_[i].previous = i == 0 ? kNone : i - 1;
      symbols_[i].next = i + 1 == n ? kNone : i + 1;
    }
    for (uint32_t i = 0; i + 1 < n; ++i) {
      symbols_[i].pair = table_.find(ids[i], ids[i + 1]);
      if (symbols_[i].pair.rank != kNoRank) heap_.push_back(entry(i));
    }
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  size_t merge_into(TokenId* ids) {
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      const uint64_t top = heap_.back();
      heap_.pop_back();
      const auto position = static_cast<uint32_t>(top);
      if (symbols_[position].pair.rank == top >> 32) merge_at(position);
    }
    size_t n = 0;
    for (uint32_t i = 0; i != kNone; i = symbols_[i].next) ids[n++] = symbols_[i].id;
    return n;
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Symbol {
    TokenId id;
    uint32_t previous, next;
    Merge pair;  // the pair with its right neighbour
  };

  uint64_t entry(uint32_t i) const { return uint64_t{symbols_[i].pair.rank} << 32 | i; }

  void refresh_pair(uint32_t i) {
    const uint32_t next = symbols_[i].next;
    symbols_[i].pair = next == kNone ? Merge{} : table_.find(symbols_[i].id, symbols_[next].id);
    if (symbols_[i].pair.rank == kNoRank) return;
    heap_.push_back(entry(i));
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  void merge_at(uint32_t position) {
    Symbol& left = symbols_[position];
    Symbol& right = symbols_[left.next];
    left.id = left.pair.merged;
    left.next = right.next;
    right.pair = {};
    if (left.next != kNone) symbols_[left.next].previous = position;
    refresh_pair(position);
    if (left.previous != kNone) refresh_pair(left.previous);
  }

  const MergeTable& table_;
  std::vector<Symbol> symbols_;
  std::vector<uint64_t> heap_;
};

}  // namespace

MergeTable::MergeTable(size_t merge_count)
    : slots_(std::bit_ceil(std::max<size_t>(2, merge_count * 2))), mask_(slots_.size() - 1) {}

void MergeTable::insert(TokenId left, TokenId right, Merge merge) {
  const uint64_t key = make_key(left, right);
  size_t i = start(key);
  while (slots_[i].key != kEmpty && slots_[i].key != key) i = (i + 1) & mask_;
  slots_[i] = {key, merge};
}

void merge_symbols(const MergeTable& table, std::vector<TokenId>& ids, size_t first) {
  const size_t n = ids.size() - first;
  if (n < 2) return;
  TokenId* symbols = ids.data() + first;
  const size_t left = n <= kShortWord ? merge_short(table, symbols, n)
                                      : LongWord(table, symbols, n).merge_into(symbols);
  ids.resize(first + left);
}

}  // namespace slimexx::text
