// What a check program does where there is no GPU.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>

namespace slimexx::kernels::testing {

// Ends the program, saying so, with the status that ctest takes for skipped.
inline void need_device() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0) return;
  std::printf("no GPU: nothing was checked\n");
  std::exit(77);
}

}  // namespace slimexx::kernels::testing
