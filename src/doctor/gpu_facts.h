#pragma once
#include "slimexx/doctor/facts.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::doctor {

bool build_has_cuda();
// Of a device of a build with CUDA. Throws Error for what cannot be asked.
GpuFacts read_gpu_facts(tensor::Device device);

}  // namespace slimexx::doctor
