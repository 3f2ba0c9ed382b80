// Collectives on device memory, over NCCL: one rank a device.
#pragma once
#include <memory>
#include <string>

#include "slimexx/dist/collective.h"

namespace slimexx::dist {

// A group of all ranks of `host`, each with its own `device`; smaller ones by split. Makes one
// exchange to see that the devices reach each other. Collective over `host`, which has to outlive
// nothing of it. Throws Error(kEnvironment) in a build without NCCL.
std::unique_ptr<Collective> make_device_collective(Collective& host, tensor::Device device);

// "NCCL 2.28.9", of the library that is loaded; empty in a build without.
std::string device_collective_version();

}  // namespace slimexx::dist
