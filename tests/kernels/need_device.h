// Skips a check program if there is no GPU.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>

namespace slimexx::kernels::testing {

// Without a device, exits with a message and the status that ctest treats as skipped.
inline void need_device() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0) return;
  std::printf("no GPU: nothing was checked\n");
  std::exit(77);
}

}  // namespace slimexx::kernels::testing
