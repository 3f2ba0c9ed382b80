// Collectives for host bytes and numbers: settings, samples, metrics. All take a Collective on host
// memory and are collective over it. Sums are in rank order.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "slimexx/dist/collective.h"

namespace slimexx::dist {

// Returns the root's bytes on every rank.
std::string broadcast_bytes(Collective& host, const std::string& bytes, int root);
// Returns every rank's bytes, indexed by rank.
std::vector<std::string> all_gather_bytes(Collective& host, const std::string& bytes);
// In place, element by element.
void all_reduce_sum(Collective& host, std::span<double> values);
void all_reduce_max(Collective& host, std::span<double> values);

}  // namespace slimexx::dist
