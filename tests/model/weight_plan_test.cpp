#include "slimexx/model/weight_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "cpu_context.h"
#include "model/made_up_family.h"

namespace slimexx::model {
namespace {

constexpr int kRanks = 8;
using Stores = std::vector<std::unique_ptr<ParameterStore>>;

Layout layout_of(const dist::GridSizes& sizes) {
  return make_layout({made_up_parameters()}, dist::GridShape(kRanks, sizes));
}

Stores make_stores(const Layout& layout, bool filled) {
  Stores stores;
  for (const auto& infos : layout.ranks) {
    stores.push_back(std::make_unique<ParameterStore>(*infos, tensor::Device{}, false));
    for (const ParameterInfo& info : stores.back()->infos())
      if (filled)
        stores.back()->write_weights(info, 0, made_up_values(info).data(), info.num_elements());
  }
  return stores;
}

// What every rank does, one rank after the other; the bytes that went, less alignment.
int64_t move_all(const Layout& from, const Layout& to, const Stores& sources,
                 const Stores& targets) {
  std::vector<WeightPlan> plans;
  for (int rank = 0; rank < kRanks; ++rank) plans.push_back(make_weight_plan(from, to, rank));
  int64_t elements = 0;
  for (size_t rank = 0; rank < plans.size(); ++rank) {
    WeightTraffic traffic;
    move_local_weights(cpu_context(), plans[rank], *sources[rank], *targets[rank], traffic);
    elements += traffic.copied / 4;
    for (size_t peer = 0; peer < plans.size(); ++peer) {
      const auto& sends = plans[rank].sends[peer];
      const auto& receives = plans[peer].receives[rank];
      const int64_t bytes = count_bytes(sends, {});
      EXPECT_EQ(bytes, count_bytes(receives, {})) << rank << " to " << peer;
      std::vector<char> buffer(static_cast<size_t>(bytes));
      const tensor::Tensor wire(buffer.data(), tensor::DType::kU8, {}, {bytes});
      pack_weights(cpu_context(), sends, *sources[rank], wire);
      unpack_weights(cpu_context(), receives, *targets[peer], wire);
      for (const WeightMove& move : sends) elements += move.num_elements();
    }
  }
  return elements;
}

TEST(WeightPlan, BringsEveryRankItsElementsOnce) {
  const std::vector<dist::GridSizes> grids = {
      {}, {.tp = 2, .ep = 2, .etp = 2}, {.tp = 2}, {.ep = 4}, {.tp = 2, .ep = 4, .etp = 1}};
  for (const auto& a : grids) {
    for (const auto& b : grids) {
      const Layout from = layout_of(a), to = layout_of(b);
      const Stores sources = make_stores(from, true), targets = make_stores(to, false);
      int64_t needed = 0;
      for (const auto& infos : to.ranks)
        for (const ParameterInfo& info : *infos) needed += info.num_elements();
      EXPECT_EQ(move_all(from, to, sources, targets), needed);
      for (const auto& store : targets)
        for (const ParameterInfo& info : store->infos())
          EXPECT_EQ(values_of(*store, info), made_up_values(info)) << info.name;
    }
  }
}

TEST(WeightPlan, TheSameMemoryIsLeftAlone) {
  const Layout layout = layout_of({});
  const Stores stores = make_stores(layout, true);
  const WeightPlan plan = make_weight_plan(layout, layout, 3);
  WeightTraffic traffic;
  move_local_weights(cpu_context(), plan, *stores[3], *stores[3], traffic);
  EXPECT_EQ(traffic.copied, 0);
  EXPECT_GT(traffic.aliased, 0);
  for (size_t peer = 0; peer < plan.sends.size(); ++peer)
    EXPECT_TRUE(plan.sends[peer].empty() && plan.receives[peer].empty()) << peer;
}

TEST(WeightPlan, CopiesShareTheSending) {
  // Four copies of each half of the dense matrices, all wanted whole by all ranks.
  const Layout from = layout_of({.tp = 2}), to = layout_of({});
  std::vector<int64_t> sent;
  for (int rank = 0; rank < kRanks; ++rank) {
    sent.push_back(0);
    for (const auto& moves : make_weight_plan(from, to, rank).sends)
      for (const WeightMove& move : moves) sent.back() += move.num_elements();
  }
  const auto [least, most] = std::ranges::minmax(sent);
  EXPECT_GT(least, 0);
  EXPECT_LE(most - least, 48) << "the largest box";
}

TEST(WeightHashes, AreThoseOfTheWholeHoweverItIsCut) {
  const Layout whole = layout_of({});
  const WeightHashes expected = hash_weights(*make_stores(whole, true)[0]);
  const dist::GridSizes sizes{.tp = 2, .ep = 4, .etp = 2};  // one data-parallel rank of experts
  const dist::GridShape grid(kRanks, sizes);
  const Layout cut = layout_of(sizes);
  const Stores stores = make_stores(cut, true);
  const auto sum_hashes = [&] {
    WeightHashes sum;
    for (int rank = 0; rank < kRanks; ++rank) {
      WeightHashes own = hash_weights(*stores[static_cast<size_t>(rank)]);
      const bool is_replica = grid.position(rank).dp > 0;
      std::erase_if(
          own, [&](const auto& entry) { return is_replica && !entry.first.starts_with("expert"); });
      add_hashes(sum, own);
    }
    return sum;
  };
  EXPECT_EQ(sum_hashes(), expected);
  // Two values of one tensor change places.
  const ParameterInfo& o = stores[0]->infos()[1];
  std::vector<float> values = values_of(*stores[0], o);
  std::swap(values[0], values[1]);
  stores[0]->write_weights(o, 0, values.data(), o.num_elements());
  const WeightHashes changed = sum_hashes();
  for (const auto& [name, hash] : expected)
    EXPECT_EQ(changed.at(name) == hash, name != "o") << name;
}

}  // namespace
}  // namespace slimexx::model
