#include "slimexx/dist/process_grid.h"

#include <gtest/gtest.h>

#include "slimexx/base/error.h"

namespace slimexx::dist {
namespace {

TEST(ProcessGrid, OrdersRanksAsMegatron) {
  // tp fastest, then cp, dp, pp: 16 ranks as 2 x 1 x 4 x 2.
  const ProcessGrid grid(16, {.tp = 2, .pp = 2});
  EXPECT_EQ(grid.dp(), 4);
  EXPECT_EQ(grid.position(5).tp, 1);
  EXPECT_EQ(grid.position(5).dp, 2);
  EXPECT_EQ(grid.position(13).pp, 1);
  EXPECT_EQ(grid.data_parallel_group(1), (std::vector<int>{1, 3, 5, 7}));
  EXPECT_EQ(grid.data_parallel_group(8), (std::vector<int>{8, 10, 12, 14}));
}

TEST(ProcessGrid, ExpertGridCoversTheSameRanks) {
  const ProcessGrid grid(8, {.tp = 2, .ep = 4});
  EXPECT_EQ(grid.dp(), 4);
  EXPECT_EQ(grid.edp(), 2);
  EXPECT_EQ(grid.position(6).ep, 2);
  EXPECT_EQ(grid.position(6).edp, 1);
}

TEST(ProcessGrid, RefusesSizesThatDoNotDivide) {
  EXPECT_THROW(ProcessGrid(6, {.tp = 4}), Error);
  EXPECT_THROW(ProcessGrid(4, {.ep = 3}), Error);
}

}  // namespace
}  // namespace slimexx::dist
