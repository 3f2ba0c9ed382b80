#include "slimexx/dist/planning.h"

#include <gtest/gtest.h>

#include <tuple>

#include "slimexx/dist/thread_ranks.h"

namespace slimexx::dist {
namespace {

using tensor::Arena;
using tensor::Device;
using tensor::DeviceType;
using tensor::DType;
using tensor::Tensor;

constexpr Device kGpu{DeviceType::kCuda, 0};

using Place = std::tuple<int, int>;  // rank and size

std::vector<Place> places_of(const Groups& g) {
  std::vector<Place> places;
  for (const Collective* group :
       {&g.world, &g.tp, &g.cp, &g.pp, &g.dp, &g.ep, &g.etp, &g.edp, &g.dp_cp, &g.tp_dp_cp})
    places.emplace_back(group->rank(), group->size());
  return places;
}

// For each pair of groups: whether they are the same object.
std::vector<bool> shared_groups(const Groups& g) {
  std::vector<bool> shared;
  const Collective* groups[] = {&g.world, &g.tp,  &g.cp,  &g.pp,    &g.dp,
                                &g.ep,    &g.etp, &g.edp, &g.dp_cp, &g.tp_dp_cp};
  for (const Collective* a : groups)
    for (const Collective* b : groups) shared.push_back(a == b);
  return shared;
}

TEST(PlanningGrid, EveryRankHasTheGroupsOfARun) {
  const GridSizes grids[] = {{},
                             {.tp = 2, .pp = 2, .ep = 2},
                             {.tp = 2, .cp = 2, .ep = 4},
                             {.tp = 2, .cp = 2, .pp = 2},
                             {.ep = 8}};
  for (const GridSizes& sizes : grids) {
    run_thread_ranks(8, [&](Collective& host) {
      const ProcessGrid run(host, sizes, {});
      const PlanningGrid plan(run.shape(), host.rank(), {});
      EXPECT_EQ(places_of(plan.groups()), places_of(run.groups())) << "rank " << host.rank();
      EXPECT_EQ(shared_groups(plan.groups()), shared_groups(run.groups()))
          << "rank " << host.rank();
    });
  }
}

TEST(PlanningGrid, CountsWhatARankWouldSend) {
  PlanningGrid grid(GridShape(16, {.tp = 4, .cp = 2, .ep = 8}), 5, kGpu);
  const Groups& g = grid.groups();
  const tensor::Stream stream = tensor::planning_stream(kGpu);
  Arena scratch = Arena::for_planning(kGpu, "");
  const Tensor rows(nullptr, DType::kF32, kGpu, {64, 8});  // 2048 bytes
  g.tp.all_gather(stream, rows, rows.rows(0, 16));
  EXPECT_EQ(grid.sent_bytes(GridAxis::kTp), 2048 / 4 * 3);
  g.tp.reduce_scatter_sum(stream, scratch, rows, split_range(64, 4), SumOrder::kRank);
  EXPECT_EQ(grid.sent_bytes(GridAxis::kTp), 2 * (2048 / 4 * 3));
  g.cp.all_reduce_sum(stream, scratch, rows, SumOrder::kAny);
  EXPECT_EQ(grid.sent_bytes(GridAxis::kCp), 2048);
  const std::vector<int64_t> counts{8, 8, 8, 8, 8, 8, 8, 8};
  g.ep.all_to_all(stream, rows, rows, counts, counts);
  EXPECT_EQ(grid.sent_bytes(GridAxis::kEp), 2048 / 8 * 7);
  EXPECT_EQ(grid.sent_bytes(GridAxis::kDp), 0);
  EXPECT_EQ(grid.sent_bytes(GridAxis::kPp), 0);
  grid.clear_sent_bytes();
  EXPECT_EQ(grid.sent_bytes(GridAxis::kEp), 0);
}

// NCCL sums gradients in its own order and needs no scratch; a sum in rank order needs scratch for
// the terms.
TEST(PlanningGrid, TakesTheScratchOfARunOnItsDevice) {
  for (const Device device : {Device{}, kGpu}) {
    PlanningGrid grid(GridShape(4, {}), 1, device);
    Arena scratch = Arena::for_planning(device, "");
    const Tensor gradients(nullptr, DType::kF32, device, {4096});
    grid.groups().dp.reduce_scatter_sum(tensor::planning_stream(device), scratch, gradients,
                                        split_range(4096, 4), SumOrder::kAny);
    EXPECT_EQ(scratch.high_water_bytes(), device.is_cpu() ? 3 * 4096 : 0);
  }
}

TEST(PlanningGridDeathTest, ACallThatWouldSendFails) {
  PlanningGrid grid(GridShape(4, {.tp = 2}), 1, {});
  std::vector<float> values(8);
  const Tensor rows(values.data(), DType::kF32, {}, {8});
  EXPECT_DEATH(grid.groups().tp.broadcast({}, rows, 0), "broadcast on rank 1 of 2.*a plan");
  EXPECT_DEATH(grid.groups().dp.barrier(), "barrier on rank 0 of 2");
  EXPECT_DEATH(grid.host().split(0, 0), "split on rank 1 of 4");
}

}  // namespace
}  // namespace slimexx::dist
