// The number of SMs for which launches are sized.
#pragma once
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

#include "slimexx/kernels/device.h"

namespace slimexx::kernels {

// The number of SMs of an H100 SXM, an H200 and a GH200. It is used on every chip, because it sets
// the number of partial sums in gradients of norms, whose bits must not depend on the chip.
inline constexpr int64_t kMultiprocessors = 132;

// The number of SMs of the current device, or the limit that tests set if it is lower. Use it only
// in kernels whose bits do not depend on this number.
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
