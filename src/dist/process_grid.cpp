#include "slimexx/dist/process_grid.h"

#include <fmt/format.h>

#include "slimexx/base/error.h"

namespace slimexx::dist {
namespace {

int divide(int world_size, int product, const std::string& names) {
  if (product < 1 || world_size % product != 0) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{} ranks do not divide by {} = {}", world_size, names, product),
                "change the sizes under `parallel`, or start a multiple of that many ranks");
  }
  return world_size / product;
}

}  // namespace

ProcessGrid::ProcessGrid(int world_size, const GridSizes& s)
    : world_size_(world_size),
      sizes_(s),
      dp_(divide(world_size, s.tp * s.cp * s.pp,
                 fmt::format("tp {} x cp {} x pp {}", s.tp, s.cp, s.pp))),
      edp_(divide(world_size, s.etp * s.ep * s.pp,
                  fmt::format("etp {} x ep {} x pp {}", s.etp, s.ep, s.pp))) {}

GridPosition ProcessGrid::position(int rank) const {
  GridPosition p;
  p.tp = rank % sizes_.tp;
  p.cp = rank / sizes_.tp % sizes_.cp;
  p.dp = rank / (sizes_.tp * sizes_.cp) % dp_;
  p.pp = rank / (sizes_.tp * sizes_.cp * dp_);
  p.etp = rank % sizes_.etp;
  p.ep = rank / sizes_.etp % sizes_.ep;
  p.edp = rank / (sizes_.etp * sizes_.ep) % edp_;
  return p;
}

std::vector<int> ProcessGrid::data_parallel_group(int rank) const {
  const GridPosition p = position(rank);
  std::vector<int> group;
  for (int d = 0; d < dp_; ++d)
    group.push_back(p.tp + sizes_.tp * (p.cp + sizes_.cp * (d + dp_ * p.pp)));
  return group;
}

}  // namespace slimexx::dist
