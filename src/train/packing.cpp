#include "slimexx/train/packing.h"

#include <algorithm>
#include <numeric>
#include <queue>
#include <utility>

#include "slimexx/base/check.h"

namespace slimexx::train {
namespace {

// One partial solution of the differencing method: k sets, heaviest first.
struct Partition {
  struct Set {
    double weight = 0;
    std::vector<int64_t> items;
    // Heavier first; ties: more items first, then larger items.
    bool operator<(const Set& other) const {
      if (weight != other.weight) return weight > other.weight;
      if (items.size() != other.items.size()) return items.size() > other.items.size();
      return items > other.items;
    }
  };
  std::vector<Set> sets;
  double spread() const { return sets.front().weight - sets.back().weight; }
};

// Widest spread first; ties: larger heaviest set first.
struct WiderFirst {
  bool operator()(const Partition& a, const Partition& b) const {
    if (a.spread() != b.spread()) return a.spread() < b.spread();
    return b.sets.front() < a.sets.front();
  }
};

// Joins the heaviest set of one partition with the lightest of the other, and so on.
Partition merge(Partition a, const Partition& b) {
  const size_t k = a.sets.size();
  for (size_t i = 0; i < k; ++i) {
    const auto& other = b.sets[k - 1 - i];
    a.sets[i].weight += other.weight;
    a.sets[i].items.insert(a.sets[i].items.end(), other.items.begin(), other.items.end());
  }
  std::sort(a.sets.begin(), a.sets.end());
  return a;
}

}  // namespace

namespace {

// Free room of bins as a tree of maxima, which finds the first bin with room in logarithmic time.
// Unused bins have the whole capacity.
class RoomTree {
 public:
  RoomTree(size_t bins, int64_t capacity) {
    while (leaves_ < bins) leaves_ *= 2;
    most_.assign(2 * leaves_, capacity);
  }
  // Requires size <= capacity: then some bin has room.
  size_t first_with_room(int64_t size) const {
    size_t node = 1;
    while (node < leaves_) node = most_[2 * node] >= size ? 2 * node : 2 * node + 1;
    return node - leaves_;
  }
  void take(size_t bin, int64_t size) {
    size_t node = bin + leaves_;
    most_[node] -= size;
    while ((node /= 2) >= 1) most_[node] = std::max(most_[2 * node], most_[2 * node + 1]);
  }

 private:
  size_t leaves_ = 1;
  std::vector<int64_t> most_;
};

}  // namespace

Bins pack_first_fit(std::span<const int64_t> lengths, int64_t capacity) {
  Bins bins;
  RoomTree room(lengths.size(), capacity);
  for (size_t i = 0; i < lengths.size(); ++i) {
    // An item above the capacity has a bin of its own.
    const size_t bin = lengths[i] > capacity ? bins.size() : room.first_with_room(lengths[i]);
    if (bin == bins.size()) bins.emplace_back();
    bins[bin].push_back(static_cast<int64_t>(i));
    room.take(bin, lengths[i]);
  }
  return bins;
}

Bins partition_karmarkar_karp(std::span<const double> weights, int64_t k, bool equal_size) {
  const auto n = static_cast<int64_t>(weights.size());
  SLX_CHECK_GE(k, 1);
  if (equal_size) SLX_CHECK_EQ(n % k, 0);
  std::vector<int64_t> order(weights.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto weight = [&](int64_t i) { return weights[static_cast<size_t>(i)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return weight(a) < weight(b); });

  std::priority_queue<Partition, std::vector<Partition>, WiderFirst> queue;
  const int64_t seeded = equal_size ? k : 1;  // items of one initial partition, each in its own set
  for (int64_t begin = 0; begin < n; begin += seeded) {
    Partition p;
    p.sets.resize(static_cast<size_t>(k));
    for (int64_t j = 0; j < seeded; ++j) {
      const int64_t item = order[static_cast<size_t>(begin + j)];
      p.sets[static_cast<size_t>(j)] = {weight(item), {item}};
    }
    std::sort(p.sets.begin(), p.sets.end());
    queue.push(std::move(p));
  }
  while (queue.size() > 1) {
    Partition a = queue.top();
    queue.pop();
    Partition b = queue.top();
    queue.pop();
    queue.push(merge(std::move(a), b));
  }
  Bins bins(static_cast<size_t>(k));
  if (queue.empty()) return bins;
  for (size_t i = 0; i < bins.size(); ++i) {
    bins[i] = queue.top().sets[i].items;
    std::sort(bins[i].begin(), bins[i].end());
  }
  return bins;
}

Bins pack_microbatches(std::span<const int64_t> lengths, const PackingOptions& options) {
  if (options.dynamic) return pack_first_fit(lengths, options.max_tokens);
  Bins bins;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (i % static_cast<size_t>(options.micro_batch_size) == 0) bins.emplace_back();
    bins.back().push_back(static_cast<int64_t>(i));
  }
  return bins;
}

Bins split_microbatch(std::span<const int64_t> indices, std::span<const int64_t> lengths) {
  SLX_CHECK_GE(indices.size(), 2u);
  int64_t num_tokens = 0;
  for (const int64_t i : indices) num_tokens += lengths[static_cast<size_t>(i)];
  size_t first = 0;  // samples of the first part
  for (int64_t tokens = 0; first + 1 < indices.size(); ++first) {
    const int64_t length = lengths[static_cast<size_t>(indices[first])];
    if (first > 0 && 2 * tokens + length > num_tokens) break;
    tokens += length;
  }
  return {{indices.begin(), indices.begin() + static_cast<int64_t>(first)},
          {indices.begin() + static_cast<int64_t>(first), indices.end()}};
}

Bins assign_microbatches(std::span<const double> costs, int num_ranks, bool balance) {
  if (balance) return partition_karmarkar_karp(costs, num_ranks, false);
  Bins bins(static_cast<size_t>(num_ranks));
  for (size_t i = 0; i < costs.size(); ++i)
    bins[i % bins.size()].push_back(static_cast<int64_t>(i));
  return bins;
}

void even_out(Bins& microbatches, Bins& by_rank, int64_t multiple) {
  size_t most = 1;
  for (const auto& own : by_rank) most = std::max(most, own.size());
  const auto group = static_cast<size_t>(multiple);
  most = (most + group - 1) / group * group;
  for (auto& own : by_rank) {
    std::vector<int64_t> evened;
    for (size_t i = own.size(); i < most; ++i) {
      evened.push_back(std::ssize(microbatches));
      microbatches.emplace_back();
    }
    evened.insert(evened.end(), own.begin(), own.end());
    own = std::move(evened);
  }
}

}  // namespace slimexx::train
