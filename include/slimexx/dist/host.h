// Bytes and numbers of the host between ranks: settings, samples, metrics. Of a Collective on host
// memory; collective over it. Sums are in rank order.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "slimexx/dist/collective.h"

namespace slimexx::dist {

// The root's bytes on every rank.
std::string broadcast_bytes(Collective& host, const std::string& bytes, int root);
// Every rank's bytes, by rank.
std::vector<std::string> all_gather_bytes(Collective& host, const std::string& bytes);
// In place, element by element.
void all_reduce_sum(Collective& host, std::span<double> values);
void all_reduce_max(Collective& host, std::span<double> values);

}  // namespace slimexx::dist
