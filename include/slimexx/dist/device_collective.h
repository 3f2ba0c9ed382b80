// Collectives on device memory, over NCCL: one rank per device.
#pragma once
#include <memory>
#include <string>

#include "slimexx/dist/collective.h"

namespace slimexx::dist {

// A group of all ranks of `host`, each with its own `device`; use split for smaller groups.
// Exchanges test data to verify that the devices reach each other. Collective over `host`, which
// may be destroyed before the group. Throws Error(kEnvironment) in a build without NCCL.
std::unique_ptr<Collective> make_device_collective(Collective& host, tensor::Device device);

// Version of the loaded library, such as "NCCL 2.28.9"; empty in a build without NCCL.
std::string device_collective_version();

}  // namespace slimexx::dist
