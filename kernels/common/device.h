// The device that launches are shaped for.
#pragma once
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

#include "slimexx/kernels/device.h"

namespace slimexx::kernels {

// Multiprocessors of an H100 SXM, an H200 and a GH200. A constant even on a chip with fewer: norms
// and heads cut their partial sums of gradients by it, so that bits do not depend on the chip.
inline constexpr int64_t kMultiprocessors = 132;

// Multiprocessors of the current device, or the limit that tests set, for kernels whose bits do not
// depend on the number.
inline cudaError_t count_multiprocessors(int& count) {
  int device = 0;
  const cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  const cudaError_t found = cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  if (const int most = multiprocessor_limit(); found == cudaSuccess && most > 0)
    count = std::min(count, most);
  return found;
}

}  // namespace slimexx::kernels
