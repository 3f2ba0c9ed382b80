// Measures the speed of memory, disk and links. Every result is the best of a few tries.
#pragma once
#include <string>

#include "slimexx/dist/collective.h"
#include "slimexx/doctor/facts.h"

namespace slimexx::doctor {

// Uses all threads of this process.
double measure_host_copy();
void measure_gpu(tensor::Device device, Rates& rates);
// Writes and removes a temporary file in `folder`. Throws Error if that fails.
double measure_write(const std::string& folder, int rank);

struct LinkRates {
  double to_next = 0, gather = 0;  // bytes per second
  double smallest_s = 0;           // a barrier on hosts, an all-reduce of one number on GPUs
};
// The rates of this rank's links. Collective.
LinkRates measure_links(dist::Collective& ranks);

}  // namespace slimexx::doctor
