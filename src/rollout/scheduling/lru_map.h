// A map of bounded size that evicts the least recently used entry.
#pragma once
#include <cstddef>
#include <list>
#include <map>
#include <utility>

namespace slimexx::rollout {

template <class Key, class Value>
class LruMap {
 public:
  // `capacity`: at least 1.
  explicit LruMap(size_t capacity) : capacity_(capacity) {}
  // Null if the key is absent. Counts as a use.
  Value* find(const Key& key) {
    const auto found = places_.find(key);
    if (found == places_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found->second);
    return &entries_.front().second;
  }
  // `key` must be absent. If the map is full, the least recently used entry is destroyed before
  // make_value() is called.
  template <class MakeValue>
  Value& insert(const Key& key, const MakeValue& make_value) {
    if (entries_.size() == capacity_) {
      places_.erase(entries_.back().first);
      entries_.pop_back();
    }
    entries_.emplace_front(key, make_value());
    places_.emplace(key, entries_.begin());
    return entries_.front().second;
  }
  void clear() {
    places_.clear();
    entries_.clear();
  }
  size_t size() const { return entries_.size(); }

 private:
  using Entries = std::list<std::pair<Key, Value>>;
  size_t capacity_;
  Entries entries_;  // most recently used first
  std::map<Key, typename Entries::iterator> places_;
};

}  // namespace slimexx::rollout
