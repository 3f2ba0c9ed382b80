#include "slimexx/train/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "slimexx/base/philox.h"

namespace slimexx::train {
namespace {

TEST(FirstFit, FillsTheFirstBinWithRoom) {
  const std::vector<int64_t> lengths = {15, 7, 7, 7, 3, 2};
  EXPECT_EQ(pack_first_fit(lengths, 10), (Bins{{0}, {1, 4}, {2, 5}, {3}}));
  EXPECT_EQ(pack_first_fit({}, 10), Bins{});
}

// Compares with a search through all bins; includes items above the capacity and of size 0.
TEST(FirstFit, IsTheSearchThroughAllBins) {
  PhiloxStream random(11, 0);
  for (int trial = 0; trial < 200; ++trial) {
    const auto n = static_cast<int64_t>(random.next_below(300));
    const auto capacity = static_cast<int64_t>(1 + random.next_below(50));
    std::vector<int64_t> lengths;
    for (int64_t i = 0; i < n; ++i)
      lengths.push_back(
          static_cast<int64_t>(random.next_below(static_cast<uint64_t>(capacity + 5))));
    Bins expected;
    std::vector<int64_t> used;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t length = lengths[static_cast<size_t>(i)];
      size_t bin = 0;
      while (bin < used.size() && used[bin] + length > capacity) ++bin;
      if (bin == used.size()) {
        used.push_back(0);
        expected.emplace_back();
      }
      used[bin] += length;
      expected[bin].push_back(i);
    }
    ASSERT_EQ(pack_first_fit(lengths, capacity), expected) << "trial " << trial;
  }
}

TEST(FirstFit, TwoMillionItemsTakeNoTime) {
  const Bins bins = pack_first_fit(std::vector<int64_t>(2'000'000, 3), 10);
  EXPECT_EQ(bins.size(), 666'667u);
}

TEST(KarmarkarKarp, WorkedExample) {
  // 1..8 into two sets of four: 2+3+5+8 and 1+4+6+7, both 18.
  const std::vector<double> weights = {1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_EQ(partition_karmarkar_karp(weights, 2, true), (Bins{{1, 2, 4, 7}, {0, 3, 5, 6}}));
}

TEST(KarmarkarKarp, CoversEveryItemOnceAndBalances) {
  PhiloxStream random(3, 0);
  for (int trial = 0; trial < 50; ++trial) {
    const auto n = static_cast<int64_t>(1 + random.next_below(60)),
               k = static_cast<int64_t>(1 + random.next_below(6));
    std::vector<double> weights;
    for (int64_t i = 0; i < n; ++i)
      weights.push_back(static_cast<double>(1 + random.next_below(1000)));
    const Bins bins = partition_karmarkar_karp(weights, k, false);
    std::vector<int> seen(static_cast<size_t>(n));
    double heaviest = 0;
    for (const auto& bin : bins) {
      double sum = 0;
      for (int64_t i : bin) {
        ++seen[static_cast<size_t>(i)];
        sum += weights[static_cast<size_t>(i)];
      }
      heaviest = std::max(heaviest, sum);
    }
    EXPECT_EQ(seen, std::vector<int>(static_cast<size_t>(n), 1)) << "trial " << trial;
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    EXPECT_LE(heaviest, total / static_cast<double>(k) + 1000) << "trial " << trial;
  }
}

TEST(Microbatches, DoNotDependOnTheNumberOfRanks) {
  const std::vector<double> costs = {5, 3, 8, 1, 1};
  for (int ranks : {1, 2, 4, 7}) {
    for (bool balance : {false, true}) {
      std::vector<int> seen(costs.size());
      for (const auto& bin : assign_microbatches(costs, ranks, balance)) {
        for (int64_t m : bin) ++seen[static_cast<size_t>(m)];
      }
      EXPECT_EQ(seen, std::vector<int>(costs.size(), 1));
    }
  }
}

TEST(SplitMicrobatch, HalvesTokensAndKeepsTheOrder) {
  const std::vector<int64_t> lengths = {10, 10, 40, 5, 5, 100, 1};
  const auto split = [&](const std::vector<int64_t>& indices) {
    return split_microbatch(indices, lengths);
  };
  EXPECT_EQ(split({0, 1}), (Bins{{0}, {1}}));
  EXPECT_EQ(split({0, 1, 2}), (Bins{{0, 1}, {2}}));
  EXPECT_EQ(split({2, 0, 1}), (Bins{{2}, {0, 1}}));
  EXPECT_EQ(split({5, 6}), (Bins{{5}, {6}}));
  EXPECT_EQ(split({6, 5}), (Bins{{6}, {5}}));
  EXPECT_EQ(split({5, 0, 3, 4}), (Bins{{5}, {0, 3, 4}}));
  EXPECT_EQ(split({3, 4, 0, 6, 5}), (Bins{{3, 4, 0, 6}, {5}}));
}

TEST(EvenOut, EmptyMicrobatchesComeFirst) {
  Bins microbatches = {{0}, {1, 2}, {3}, {4}}, by_rank = {{0, 2, 3}, {1}, {}};
  even_out(microbatches, by_rank);
  EXPECT_EQ(by_rank, (Bins{{0, 2, 3}, {4, 5, 1}, {6, 7, 8}}));
  EXPECT_EQ(microbatches, (Bins{{0}, {1, 2}, {3}, {4}, {}, {}, {}, {}, {}}));
  // Without samples every rank still runs one microbatch.
  Bins none, two_ranks(2);
  even_out(none, two_ranks);
  EXPECT_EQ(two_ranks, (Bins{{0}, {1}}));
}

}  // namespace
}  // namespace slimexx::train
