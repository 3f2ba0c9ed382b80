// Groups of a rank that plans alone, of a grid of which no rank runs: for planning contexts and
// streams (ops/context.h). Rank, size and device are those that a run would have; a call that would
// send or wait fails a check.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "slimexx/dist/process_grid.h"

namespace slimexx::dist {

// Adds what planned calls would send to `sent_bytes`, where that is given.
std::unique_ptr<Collective> make_planning_group(int rank, int size, tensor::Device device,
                                                std::shared_ptr<int64_t> sent_bytes = nullptr);

// As ProcessGrid, of any rank of a shape.
class PlanningGrid {
 public:
  PlanningGrid(const GridShape& shape, int rank, tensor::Device device);
  PlanningGrid(const PlanningGrid&) = delete;
  PlanningGrid& operator=(const PlanningGrid&) = delete;
  const GridShape& shape() const { return shape_; }
  const Groups& groups() const { return *groups_; }
  Collective& host() { return *host_; }  // all ranks, on host memory
  // What this rank would have sent over the groups of an axis since the last clear: of an operation
  // of all ranks (size - 1) / size of the whole, twice that of an all-reduce, of routed rows the
  // share that an even spread sends away. Axes that cut the world alike count as one.
  int64_t sent_bytes(GridAxis axis) const;
  void clear_sent_bytes();

 private:
  GridShape shape_;
  Collective one_;
  std::unique_ptr<Collective> host_;
  std::shared_ptr<int64_t> world_bytes_;
  std::unique_ptr<Collective> world_;
  std::vector<std::unique_ptr<Collective>> parts_;
  std::array<std::shared_ptr<int64_t>, kNumGridAxes> bytes_;  // null: a group of one
  std::unique_ptr<Groups> groups_;
};

}  // namespace slimexx::dist
