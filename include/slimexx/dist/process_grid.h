// Maps ranks to parallel axes, and makes their groups. Rank order is Megatron's, fastest first: tp,
// cp, dp, pp; the expert grid (etp, ep, edp, pp) covers the same ranks.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "slimexx/dist/groups.h"

namespace slimexx::dist {

struct GridSizes {
  int tp = 1, cp = 1, pp = 1, ep = 1, etp = 1;
};

struct GridPosition {
  int tp = 0, cp = 0, dp = 0, pp = 0;
  int etp = 0, ep = 0, edp = 0;
};

// kDpCp and kTpDpCp combine axes whose ranks are evenly spaced.
enum class GridAxis : uint8_t { kTp, kCp, kPp, kDp, kEp, kEtp, kEdp, kDpCp, kTpDpCp };
inline constexpr int kNumGridAxes = 9;

// Rank arithmetic of a grid; needs no running ranks.
class GridShape {
 public:
  // Throws Error(kUsage) with the equation and the nearest valid sizes if the sizes do not divide
  // the world.
  GridShape(int world_size, const GridSizes& sizes);
  int world_size() const { return world_size_; }
  const GridSizes& sizes() const { return sizes_; }
  GridPosition position(int rank) const;
  int size(GridAxis axis) const { return of(axis).size; }
  int coordinate(GridAxis axis, int rank) const { return rank / of(axis).stride % of(axis).size; }
  // The ranks that differ from `rank` in this coordinate only, ascending.
  std::vector<int> group(GridAxis axis, int rank) const;
  // Whether both axes have the same groups.
  bool are_alike(GridAxis a, GridAxis b) const;

 private:
  struct Axis {
    int size = 1, stride = 1;  // stride: between neighbours
  };
  const Axis& of(GridAxis axis) const { return axes_[static_cast<size_t>(axis)]; }
  int world_size_;
  GridSizes sizes_;
  std::array<Axis, kNumGridAxes> axes_;
};

// A grid of running ranks, with its groups. On the CPU they are split from `host`; on devices they
// use NCCL, or the shared device if the ranks are threads. Make it once per run, and destroy it
// before the memory that its groups work on: after a failure, that memory may be freed only when no
// operation waits in NCCL.
class ProcessGrid {
 public:
  // `host` contains all ranks of the grid and must outlive this object. Collective.
  ProcessGrid(Collective& host, const GridSizes& sizes, tensor::Device device);
  ProcessGrid(const ProcessGrid&) = delete;
  ProcessGrid& operator=(const ProcessGrid&) = delete;
  const GridShape& shape() const { return shape_; }
  const Groups& groups() const { return *groups_; }

 private:
  GridShape shape_;
  Collective one_;
  std::unique_ptr<Collective> device_world_;
  std::vector<std::unique_ptr<Collective>> parts_;
  std::unique_ptr<Groups> groups_;
};

}  // namespace slimexx::dist
