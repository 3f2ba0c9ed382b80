#include "slimexx/model/weight_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "cpu_context.h"
#include "model/cut_parameters.h"
#include "model/made_up_family.h"
#include "slimexx/dist/host.h"
#include "slimexx/dist/thread_ranks.h"
#include "slimexx/model/weight_hash.h"

namespace slimexx::model {
namespace {

constexpr int kRanks = 8;
using Stores = std::vector<std::unique_ptr<ParameterStore>>;

Layout layout_of(const dist::GridSizes& sizes, int64_t num_copies = 0) {
  return make_layout({made_up_parameters(num_copies)}, dist::GridShape(kRanks, sizes));
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

WeightPlan make_weight_plan(const Layout& from, const Layout& to, int rank,
                            int64_t round_elements = kRoundElements) {
  return make_weight_plans(from, to, {{rank}}, round_elements)[0];
}

// Runs the moves of all ranks one after another; returns the bytes sent, without alignment.
int64_t move_all(const Layout& from, const Layout& to, const Stores& sources, const Stores& targets,
                 int64_t round_elements) {
  std::vector<WeightPlan> plans;
  for (int rank = 0; rank < kRanks; ++rank)
    plans.push_back(make_weight_plan(from, to, rank, round_elements));
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
      EXPECT_EQ(plans[rank].num_rounds, plans[0].num_rounds) << rank;
      EXPECT_TRUE(std::ranges::equal(sends, receives, {}, &WeightMove::round, &WeightMove::round));
      EXPECT_TRUE(std::ranges::is_sorted(sends, {}, &WeightMove::round));
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
  // The last three layouts hold some of the four experts two or three times.
  const std::vector<Layout> layouts = {layout_of({}),
                                       layout_of({.tp = 2, .ep = 2, .etp = 2}),
                                       layout_of({.tp = 2}),
                                       layout_of({.ep = 4}),
                                       layout_of({.tp = 2, .ep = 4, .etp = 1}),
                                       layout_of({.tp = 2, .ep = 4}, 6),
                                       layout_of({.ep = 8}, 11),
                                       layout_of({.ep = 2, .etp = 2}, 5)};
  for (const Layout& from : layouts) {
    for (const Layout& to : layouts) {
      const Stores sources = make_stores(from, true);
      int64_t needed = 0;
      for (const auto& infos : to.ranks)
        for (const ParameterInfo& info : *infos) needed += info.num_elements();
      for (const int64_t round_elements : {kRoundElements, int64_t{40}}) {
        const Stores targets = make_stores(to, false);
        EXPECT_EQ(move_all(from, to, sources, targets, round_elements), needed);
        for (const auto& store : targets)
          for (const ParameterInfo& info : store->infos())
            EXPECT_EQ(values_of(*store, info), made_up_values(info)) << info.name;
      }
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
  // Four replicas of each half of the dense matrices; all ranks need the whole matrices.
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

// Values that identify tensor and element.
std::vector<float> cut_values(const ParameterInfo& info) {
  std::vector<float> values(static_cast<size_t>(info.num_elements()));
  for (const ElementRun& run : list_runs(info)) {
    const auto name = static_cast<float>(info.parts[run.part].name[0]);
    for (int64_t i = 0; i < run.size; ++i)
      values[static_cast<size_t>(run.in_parameter + i)] =
          name * 1000 + static_cast<float>(run.on_disk + i);
  }
  return values;
}

WeightHashes hash_all(const Layout& layout, const ParameterStore& store, dist::Collective& ranks) {
  const std::vector<uint64_t> own = hash_parts(store);
  std::vector<std::vector<uint64_t>> by_rank;
  for (const std::string& bytes : dist::all_gather_bytes(
           ranks, std::string(reinterpret_cast<const char*>(own.data()), own.size() * 8))) {
    const auto* first = reinterpret_cast<const uint64_t*>(bytes.data());
    by_rank.emplace_back(first, first + bytes.size() / 8);
  }
  return sum_hashes(layout, by_rank, "a layout");
}

// Moves weights between layouts with ranks as threads; returns what each rank sent and received,
// with alignment.
std::vector<WeightTraffic> move_on_threads(const Layout& from, const Layout& to,
                                           int64_t round_elements = kRoundElements,
                                           int64_t scratch_bytes = 1 << 20) {
  std::vector<WeightTraffic> traffic(from.ranks.size());
  dist::run_thread_ranks(static_cast<int>(traffic.size()), [&](dist::Collective& ranks) {
    const auto own = static_cast<size_t>(ranks.rank());
    ParameterStore source(*from.ranks[own], tensor::Device{}, false);
    ParameterStore target(*to.ranks[own], tensor::Device{}, false);
    for (const ParameterInfo& info : source.infos())
      source.write_weights(info, 0, cut_values(info).data(), info.num_elements());
    tensor::Arena scratch({}, scratch_bytes, "test");
    const WeightPlan plan = make_weight_plan(from, to, ranks.rank(), round_elements);
    traffic[own] = move_weights(ops::compute_context(scratch), plan, source, target, ranks);
    for (const ParameterInfo& info : target.infos())
      EXPECT_EQ(values_of(target, info), cut_values(info)) << info.name << " on rank " << own;
    EXPECT_EQ(hash_all(to, target, ranks), hash_all(from, source, ranks));
  });
  return traffic;
}

struct Moved {
  int64_t sent = 0, received = 0, copied = 0;
};
Moved sum_traffic(const std::vector<WeightTraffic>& traffic) {
  Moved sum;
  for (const WeightTraffic& t : traffic) {
    sum.sent += t.sent;
    sum.received += t.received;
    sum.copied += t.copied;
    EXPECT_EQ(t.aliased, 0);
  }
  return sum;
}

// Rounds of one row of a square: memory does not depend on the amount of data. A round takes 16
// bytes per peer and direction, plus arena alignment.
TEST(WeightPlan, RoundsTakeLittleMemory) {
  const dist::GridShape grid(4, {.tp = 4});
  const Layout rows = make_layout({cut_parameters(0, 1)}, grid);
  const Layout columns = make_layout({cut_parameters(1, 0)}, grid);
  EXPECT_EQ(make_weight_plan(rows, columns, 0).num_rounds, 1);
  EXPECT_EQ(make_weight_plan(rows, columns, 0, 3 * 3).num_rounds, 6);
  // Two rounds are in flight, each with 48 bytes per direction.
  const auto traffic = move_on_threads(rows, columns, 3 * 3, 2 * 2 * 64);
  for (const WeightTraffic& t : traffic) EXPECT_EQ(t.sent, 2 * 3 * 3 * 16);
}

// A pair of ranks exchanges at most 212 elements, 200 of a shard and possibly the norm: four rounds
// of 53, regardless of the number of possible pairs.
TEST(WeightPlan, RoundsAreOfWhatPairsHave) {
  const dist::GridShape grid(2, {.tp = 2});
  const auto shards = make_layout({cut_parameters(0, 1)}, grid).ranks;
  const auto none = std::make_shared<const std::vector<ParameterInfo>>();
  const Layout trainer{{shards[0], shards[1], none, none}};
  const Layout engine{{none, none, shards[0], shards[1]}};
  EXPECT_EQ(make_weight_plan(trainer, engine, 0, 256).num_rounds, 1);
  EXPECT_EQ(make_weight_plan(trainer, engine, 0, 64).num_rounds, 4);
  EXPECT_EQ(make_weight_plan(trainer, engine, 2, 212).num_rounds, 1);
  for (const int64_t round_elements : {256, 64}) {
    const Moved moved = sum_traffic(move_on_threads(trainer, engine, round_elements));
    EXPECT_EQ(moved.copied, 0);
    EXPECT_GE(moved.received, 2 * 212 * 4);
  }
}

// With a 12 x 12 matrix split by rows and then by columns over n ranks, a rank keeps one 12/n x
// 12/n square and receives the other n - 1 from one rank each. `qk` and `norm` do not move.
TEST(WeightPlan, RowsBecomeColumnsOnThreads) {
  struct Case {
    int ranks;
    int64_t square_bytes;  // with alignment to 16
  };
  for (const auto [n, square_bytes] : {Case{2, 144}, Case{4, 48}, Case{6, 16}}) {
    const dist::GridShape grid(n, {.tp = n});
    const auto traffic = move_on_threads(make_layout({cut_parameters(0, 1)}, grid),
                                         make_layout({cut_parameters(1, 0)}, grid));
    for (const WeightTraffic& t : traffic) {
      EXPECT_EQ(t.sent, 2 * (n - 1) * square_bytes) << n;
      EXPECT_EQ(t.received, 2 * (n - 1) * square_bytes) << n;
    }
    const int64_t squares = 2 * 144 / n * 4, q = 24 * 4 * 4, k = n * 32, norm = n * 48;
    EXPECT_EQ(sum_traffic(traffic).copied, squares + q + k + norm) << n;
  }
}

// Slab r of n is the shard of rank r under tp n. Under tp 2, even ranks hold the first half of the
// slabs and odd ranks the second. There are two key heads: the ranks of one half hold the same key
// head.
TEST(WeightPlan, ReplicasShareOutOnThreads) {
  struct Case {
    int ranks;
    int64_t slabs_in, slabs_out;  // received by all ranks, to tp 2 and back
  };
  // 4 ranks: each needs 2 slabs. Ranks 0 and 3 already hold one of them and receive 1; ranks 1 and
  // 2 hold neither and receive 2. On the way back, only ranks 1 and 2 receive their slab. 6 ranks:
  // each needs 3 slabs. Ranks 1 and 4 receive 3, the others 2.
  for (const auto& c : {Case{4, 6, 2}, Case{6, 14, 2}}) {
    const auto n = static_cast<int64_t>(c.ranks);
    const int64_t slab = 2 * (144 / n * 4) + 96 / n * 4;  // both matrices and the queries
    const Layout shards =
        make_layout({cut_parameters(0, 1)}, dist::GridShape(c.ranks, {.tp = c.ranks}));
    const Layout replicas =
        make_layout({cut_parameters(0, 1)}, dist::GridShape(c.ranks, {.tp = 2}));
    const Moved in = sum_traffic(move_on_threads(shards, replicas));
    EXPECT_EQ(in.received, c.slabs_in * slab + 2 * 32) << c.ranks;
    EXPECT_EQ(in.sent, in.received) << c.ranks;
    const Moved out = sum_traffic(move_on_threads(replicas, shards));
    EXPECT_EQ(out.received, c.slabs_out * slab + 2 * 32) << c.ranks;
    EXPECT_EQ(out.sent, out.received) << c.ranks;
  }
}

}  // namespace
}  // namespace slimexx::model
