#include "slimexx/dist/process_grid.h"

#include <gtest/gtest.h>

#include "dist/collective_contract.h"
#include "slimexx/base/error.h"
#include "slimexx/dist/host.h"
#include "slimexx/dist/thread_ranks.h"

namespace slimexx::dist {
namespace {

TEST(GridShape, OrdersRanksAsMegatron) {
  // tp fastest, then cp, dp, pp: 16 ranks as 2 x 1 x 4 x 2.
  const GridShape grid(16, {.tp = 2, .pp = 2});
  EXPECT_EQ(grid.size(GridAxis::kDp), 4);
  EXPECT_EQ(grid.coordinate(GridAxis::kTp, 5), 1);
  EXPECT_EQ(grid.coordinate(GridAxis::kDp, 5), 2);
  EXPECT_EQ(grid.coordinate(GridAxis::kPp, 13), 1);
  EXPECT_EQ(grid.group(GridAxis::kDp, 1), (std::vector<int>{1, 3, 5, 7}));
  EXPECT_EQ(grid.group(GridAxis::kDp, 8), (std::vector<int>{8, 10, 12, 14}));
  EXPECT_EQ(grid.group(GridAxis::kPp, 5), (std::vector<int>{5, 13}));
}

TEST(GridShape, ExpertGridCoversTheSameRanks) {
  const GridShape grid(8, {.tp = 2, .ep = 4});
  EXPECT_EQ(grid.size(GridAxis::kDp), 4);
  EXPECT_EQ(grid.size(GridAxis::kEdp), 2);
  EXPECT_EQ(grid.coordinate(GridAxis::kEp, 6), 2);
  EXPECT_EQ(grid.coordinate(GridAxis::kEdp, 6), 1);
  EXPECT_EQ(grid.group(GridAxis::kEdp, 6), (std::vector<int>{2, 6}));
}

TEST(GridShape, RefusesSizesThatDoNotDivide) {
  EXPECT_THROW(GridShape(6, {.tp = 4}), Error);
  EXPECT_THROW(GridShape(4, {.ep = 3}), Error);
}

// World ranks of a group's members, in group order.
std::vector<int> members_of(Collective& group, int rank) {
  std::vector<int> members;
  for (const std::string& r : all_gather_bytes(group, std::to_string(rank)))
    members.push_back(std::stoi(r));
  return members;
}

TEST(ProcessGrid, GroupsAreThoseOfTheShape) {
  struct Case {
    int ranks;
    GridSizes sizes;
  };
  for (const Case& c : {Case{1, {}}, Case{3, {}}, Case{8, {.tp = 2, .pp = 2, .ep = 2}},
                        Case{8, {.tp = 2, .cp = 2, .ep = 4}}, Case{4, {.tp = 4, .ep = 4}}}) {
    run_thread_ranks(c.ranks, [&](Collective& host) {
      const ProcessGrid grid(host, c.sizes, {});
      const Groups& g = grid.groups();
      EXPECT_EQ(g.world.size(), c.ranks);
      for (const auto& [axis, group] :
           {std::pair{GridAxis::kTp, &g.tp}, std::pair{GridAxis::kCp, &g.cp},
            std::pair{GridAxis::kPp, &g.pp}, std::pair{GridAxis::kDp, &g.dp},
            std::pair{GridAxis::kEp, &g.ep}, std::pair{GridAxis::kEtp, &g.etp},
            std::pair{GridAxis::kEdp, &g.edp}}) {
        if (group->size() == 1) {
          EXPECT_EQ(grid.shape().size(axis), 1);
          continue;
        }
        EXPECT_EQ(members_of(*group, host.rank()), grid.shape().group(axis, host.rank()));
        EXPECT_EQ(group->rank(), grid.shape().coordinate(axis, host.rank()));
      }
    });
  }
}

// With data parallelism only, all traffic uses the world group.
TEST(ProcessGrid, GroupsOfTheSameRanksAreOne) {
  run_thread_ranks(3, [](Collective& host) {
    const ProcessGrid grid(host, {}, {});
    EXPECT_EQ(&grid.groups().dp, &host);
    EXPECT_EQ(&grid.groups().edp, &host);
    EXPECT_EQ(&grid.groups().tp, &grid.groups().pp);
  });
}

}  // namespace
}  // namespace slimexx::dist
