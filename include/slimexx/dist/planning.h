// Groups for a rank that plans alone, while no rank of its grid runs: for planning contexts and
// streams (ops/context.h). Rank, size and device are those of a real run; a call that would send or
// wait fails a check.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "slimexx/dist/process_grid.h"

namespace slimexx::dist {

// Adds the bytes that planned calls would send to `sent_bytes`, if it is not null.
std::unique_ptr<Collective> make_planning_group(int rank, int size, tensor::Device device,
                                                std::shared_ptr<int64_t> sent_bytes = nullptr);

// Like ProcessGrid, for any rank of a shape.
class PlanningGrid {
 public:
  PlanningGrid(const GridShape& shape, int rank, tensor::Device device);
  PlanningGrid(const PlanningGrid&) = delete;
  PlanningGrid& operator=(const PlanningGrid&) = delete;
  const GridShape& shape() const { return shape_; }
  const Groups& groups() const { return *groups_; }
  Collective& host() { return *host_; }  // all ranks, on host memory
  // Bytes that this rank would have sent over the group of an axis since the last clear. Counted
  // per call: (size - 1) / size of the data for a collective, twice that for an all-reduce; for
  // routed rows, the same fraction (an even spread). Axes with the same ranks share one counter.
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
