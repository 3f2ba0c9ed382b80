// Which rank holds which part. Rank order is Megatron's, fastest first: tp, cp, dp, pp; the expert
// grid (etp, ep, edp, pp) covers the same ranks.
#pragma once
#include <cstdint>
#include <vector>

namespace slimexx::dist {

struct GridSizes {
  int tp = 1, cp = 1, pp = 1, ep = 1, etp = 1;
};

struct GridPosition {
  int tp = 0, cp = 0, dp = 0, pp = 0;
  int etp = 0, ep = 0, edp = 0;
};

class ProcessGrid {
 public:
  // Throws Error(kUsage) with the equation if the sizes do not divide the world.
  ProcessGrid(int world_size, const GridSizes& sizes);
  int world_size() const { return world_size_; }
  const GridSizes& sizes() const { return sizes_; }
  int dp() const { return dp_; }    // data-parallel size of the dense grid
  int edp() const { return edp_; }  // of the expert grid
  GridPosition position(int rank) const;
  // The ranks that share all coordinates of `rank` but dp, ascending.
  std::vector<int> data_parallel_group(int rank) const;

 private:
  int world_size_;
  GridSizes sizes_;
  int dp_, edp_;
};

}  // namespace slimexx::dist
