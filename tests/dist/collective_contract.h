// The contract of every Collective: threads, MPI and NCCL run the same checks. Each check returns a
// description of the first difference; empty if there is none.
#pragma once
#include <string>

#include "slimexx/dist/collective.h"

namespace slimexx::dist {

// Checks every operation on tensors of `device`, over `c` and over parts of it. Collective.
std::string check_collective(Collective& c, tensor::Device device);

// Checks the operations of a group on host memory: on bytes, numbers and counters. Collective.
std::string check_host(Collective& host);

}  // namespace slimexx::dist
