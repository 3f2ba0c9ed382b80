// Which rank holds which part of the work, and the groups that follow. Rank order is Megatron's,
// fastest first: tp, cp, dp, pp; the expert grid (etp, ep, edp, pp) covers the same ranks.
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

// Of two or three axes at once where their ranks are evenly spaced.
enum class GridAxis : uint8_t { kTp, kCp, kPp, kDp, kEp, kEtp, kEdp, kDpCp, kTpDpCp };
inline constexpr int kNumGridAxes = 9;

// The arithmetic of a grid; needs no ranks that run.
class GridShape {
 public:
  // Throws Error(kUsage) with the equation and the nearest sizes that would do if the sizes do not
  // divide the world.
  GridShape(int world_size, const GridSizes& sizes);
  int world_size() const { return world_size_; }
  const GridSizes& sizes() const { return sizes_; }
  GridPosition position(int rank) const;
  int size(GridAxis axis) const { return of(axis).size; }
  int coordinate(GridAxis axis, int rank) const { return rank / of(axis).stride % of(axis).size; }
  // The ranks that share all coordinates of `rank` but this one, ascending.
  std::vector<int> group(GridAxis axis, int rank) const;
  // The axes have the same groups: they cut the world alike.
  bool are_alike(GridAxis a, GridAxis b) const;

 private:
  struct Axis {
    int size = 1, stride = 1;  // between neighbours
  };
  const Axis& of(GridAxis axis) const { return axes_[static_cast<size_t>(axis)]; }
  int world_size_;
  GridSizes sizes_;
  std::array<Axis, kNumGridAxes> axes_;
};

// A grid of ranks that run, with its groups: those of the CPU are parts of `host`, those of a
// device go over NCCL, or are those of threads that share one device. Made once a run, and
// destroyed before the memory that its groups work on: after a failure that may be freed only once
// nothing waits in NCCL.
class ProcessGrid {
 public:
  // `host` has all ranks of the grid and must outlive it. Collective.
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
