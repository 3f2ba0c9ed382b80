#pragma once
#include "slimexx/doctor/facts.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::doctor {

bool build_has_cuda();
// Facts about a device; only in a build with CUDA. Throws Error if a query fails.
GpuFacts read_gpu_facts(tensor::Device device);

}  // namespace slimexx::doctor
