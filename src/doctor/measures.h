// How fast memory, disk and links are. Every figure is the best of a few tries.
#pragma once
#include <string>

#include "slimexx/dist/collective.h"
#include "slimexx/doctor/facts.h"

namespace slimexx::doctor {

// With all threads of this process.
double measure_host_copy();
void measure_gpu(tensor::Device device, Rates& rates);
// Writes and removes a file of its own in `folder`. Throws Error for what fails.
double measure_write(const std::string& folder, int rank);

struct LinkRates {
  double to_next = 0, gather = 0;  // bytes a second
  double smallest_s = 0;           // a barrier on the host, an all-reduce of one number on GPUs
};
// Of this rank. Collective.
LinkRates measure_links(dist::Collective& ranks);

}  // namespace slimexx::doctor
