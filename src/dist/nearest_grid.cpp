#include "slimexx/dist/nearest_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace slimexx::dist {
namespace {

// The largest world size to suggest.
constexpr int64_t kMostRanks = 65536;

struct SizeKey {
  const char* key;
  int GridSizes::*size;
};
// The search tries changes of the last key first, so that key wins ties. tp must come before etp,
// since etp may be derived from tp.
constexpr SizeKey kKeys[] = {
    {"parallel.pipeline_model_parallel_size", &GridSizes::pp},
    {"parallel.context_parallel_size", &GridSizes::cp},
    {"parallel.tensor_model_parallel_size", &GridSizes::tp},
    {"parallel.expert_model_parallel_size", &GridSizes::ep},
    {"parallel.expert_tensor_parallel_size", &GridSizes::etp},
};

struct Distance {
  int num_changed = 0;
  double ratios = 0;  // sum of logarithms
  bool operator<(const Distance& other) const {
    constexpr double kSame = 1e-9;
    if (num_changed != other.num_changed) return num_changed < other.num_changed;
    return ratios < other.ratios - kSame;
  }
};

std::vector<int> list_divisors(int number) {
  std::vector<int> divisors;
  for (int d = 1; d <= number; ++d)
    if (number % d == 0) divisors.push_back(d);
  return divisors;
}

double ratio_of(int one, int other) { return std::abs(std::log(static_cast<double>(one) / other)); }

int64_t dense_product(const GridSizes& s) { return int64_t{s.tp} * s.cp * s.pp; }
int64_t expert_product(const GridSizes& s) { return int64_t{s.etp} * s.ep * s.pp; }

class GridSearch {
 public:
  GridSearch(int world_size, const GridSizes& wanted, const GridRule& rule)
      : world_size_(world_size),
        wanted_(wanted),
        rule_(rule),
        divisors_(list_divisors(world_size)) {}

  bool fits(const GridSizes& s) const {
    return world_size_ % dense_product(s) == 0 && world_size_ % expert_product(s) == 0 &&
           (!rule_ || rule_(s));
  }

  std::optional<GridSizes> find_nearest() {
    best_.reset();
    best_distance_ = {.num_changed = std::numeric_limits<int>::max()};
    search(kKeys, wanted_, {});
    return best_;
  }

  // The size of `key` if only earlier keys changed: etp follows tp if both were equal.
  int unchanged(const SizeKey& key, const GridSizes& s) const {
    const bool follows = key.size == &GridSizes::etp && wanted_.etp == wanted_.tp;
    return follows ? s.tp : wanted_.*key.size;
  }

  // The nearest sizes below and above that make the grid valid if nothing else changes.
  std::vector<int> list_alternatives(const SizeKey& key) const {
    std::vector<int> near;
    for (const int value : divisors_) {
      GridSizes s = wanted_;
      s.*key.size = value;
      if (key.size == &GridSizes::tp) s.etp = unchanged(kKeys[std::size(kKeys) - 1], s);
      if (value == wanted_.*key.size || !fits(s)) continue;
      const bool is_above = value > wanted_.*key.size;
      if (!is_above) near.clear();  // values ascend: this one is nearer than the last
      near.push_back(value);
      if (is_above) break;
    }
    return near;
  }

 private:
  void search(std::span<const SizeKey> open, GridSizes s, Distance distance) {
    if (!(distance < best_distance_)) return;
    // Sizes that are not chosen yet can only enlarge the product, so the product so far must
    // already divide the ranks.
    if (world_size_ % chosen_product(open.size(), s, &GridSizes::tp, &GridSizes::cp) != 0 ||
        world_size_ % chosen_product(open.size(), s, &GridSizes::ep, &GridSizes::etp) != 0)
      return;
    if (open.empty()) {
      if (!fits(s)) return;
      best_ = s;
      best_distance_ = distance;
      return;
    }
    const SizeKey& key = open.front();
    const int same = unchanged(key, s);
    std::vector<int> values = same > 1 ? divisors_ : std::vector<int>{1};
    std::ranges::stable_sort(values, {}, [&](int value) { return ratio_of(value, same); });
    for (const int value : values) {
      s.*key.size = value;
      search(open.subspan(1), s,
             {distance.num_changed + (value == same ? 0 : 1),
              distance.ratios + ratio_of(value, same)});
    }
  }

  // Product of pp and the two given sizes. The last `num_open` keys are still open and count as 1.
  static int64_t chosen_product(size_t num_open, const GridSizes& s, int GridSizes::*one,
                                int GridSizes::*other) {
    int64_t product = 1;
    for (const SizeKey& key : std::span(kKeys).first(std::size(kKeys) - num_open))
      if (key.size == &GridSizes::pp || key.size == one || key.size == other)
        product *= s.*key.size;
    return product;
  }

  int world_size_;
  const GridSizes& wanted_;
  const GridRule& rule_;
  std::vector<int> divisors_;
  std::optional<GridSizes> best_;
  Distance best_distance_;
};

// ", or use 12 or 24 ranks"; empty if the product is too large, already divides the world, or the
// sizes break the rule.
std::string suggest_ranks(int world_size, const GridSizes& wanted, const GridRule& rule) {
  const int64_t dense = dense_product(wanted), expert = expert_product(wanted);
  if (dense > kMostRanks || expert > kMostRanks || (rule && !rule(wanted))) return "";
  const int64_t least = std::lcm(dense, expert);
  if (least > kMostRanks || world_size % least == 0) return "";
  const int64_t below = world_size / least * least;
  return below == 0 ? fmt::format(", or use {} ranks", least)
                    : fmt::format(", or use {} or {} ranks", below, below + least);
}

}  // namespace

GridAdvice advise_grid(int world_size, const GridSizes& wanted, const GridRule& rule) {
  GridSearch search(world_size, wanted, rule);
  const auto nearest = search.find_nearest();
  if (!nearest) return rule ? advise_grid(world_size, wanted) : GridAdvice{};
  std::vector<const SizeKey*> changed;
  for (const SizeKey& key : kKeys)
    if (*nearest.*key.size != search.unchanged(key, *nearest)) changed.push_back(&key);
  if (changed.empty()) return {};
  std::string hint;
  if (changed.size() == 1) {
    for (const int value : search.list_alternatives(*changed[0]))
      hint += fmt::format("{} {}", hint.empty() ? "set it to" : " or", value);
  } else {
    for (const SizeKey* key : changed)
      hint +=
          fmt::format("{} {} to {}", hint.empty() ? "set" : " and", key->key, *nearest.*key->size);
  }
  return {hint + suggest_ranks(world_size, wanted, rule), changed[0]->key};
}

}  // namespace slimexx::dist
