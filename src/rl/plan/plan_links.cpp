#include "rl/plan/plan_links.h"

#include <algorithm>
#include <utility>

namespace slimexx::rl {

using dist::GridAxis;

std::vector<PlannedExchange> list_exchanges(const dist::GridShape& grid, bool has_experts) {
  std::vector<PlannedExchange> exchanges;
  for (const PlannedExchange& next :
       {PlannedExchange{GridAxis::kTp, "tensor parallel: rows of activations"},
        PlannedExchange{GridAxis::kCp, "context parallel: keys and values"},
        PlannedExchange{GridAxis::kEp, "expert parallel: dispatch and combine"},
        PlannedExchange{GridAxis::kEtp, "expert tensor parallel: rows and columns"},
        PlannedExchange{GridAxis::kPp, "pipeline: rows between stages"}}) {
    const bool is_of_experts = next.axis == GridAxis::kEp || next.axis == GridAxis::kEtp;
    if (grid.size(next.axis) == 1 || (is_of_experts && !has_experts)) continue;
    const auto same = std::ranges::find_if(exchanges, [&](const PlannedExchange& other) {
      return grid.are_alike(next.axis, other.axis);
    });
    if (same == exchanges.end())
      exchanges.push_back(next);
    else
      same->what += "; " + next.what;
  }
  return exchanges;
}

// A group within a host sends over NVLink. A larger group is limited by the network: a ring sends
// all its bytes over the slowest link. Dispatch and combine use the network only for the rows of
// ranks on other hosts.
PlannedLink make_link(const dist::GridShape& grid, int rank, const tensor::DeviceKind& gpu,
                      std::string what, GridAxis axis, double bytes) {
  PlannedLink link{.what = std::move(what), .num_ranks = grid.size(axis), .bytes = bytes};
  int away = 0;
  for (const int other : grid.group(axis, rank))
    away += other / gpu.gpus_per_host != rank / gpu.gpus_per_host ? 1 : 0;
  link.crosses_hosts = away > 0;
  if (gpu.is_cpu()) return link;
  const double share = axis == GridAxis::kEp && link.num_ranks > 1
                           ? static_cast<double>(away) / (link.num_ranks - 1)
                           : 1;
  link.seconds =
      link.crosses_hosts ? bytes * share / gpu.network_bytes_per_s : bytes / gpu.nvlink_bytes_per_s;
  return link;
}

}  // namespace slimexx::rl
