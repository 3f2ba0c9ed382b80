// Timing of memory-bound kernels: graph replays over operands that together exceed L2, and the
// device's copy bandwidth as the upper bound.
#pragma once
#include <cuda_runtime.h>
#include <cstdint>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "bench/kernels/replay.h"
#include "tests/kernels/device_array.h"

namespace slimexx::kernels::testing {

// Microseconds per launch, the median of five measurements. A graph of `launches` launches (with
// copy = 0, 1, .., copies - 1, 0, ..) is replayed for about target_us.
inline double time_launches(int launches, int copies, double target_us, const Launch& launch) {
  Replay replay(launches, [&](int i, cudaStream_t stream) { launch(i % copies, stream); });
  const int repeats = replay.count_repeats(target_us, 1, 400);
  std::vector<double> us(5);
  for (double& v : us) v = replay.time(repeats);
  std::sort(us.begin(), us.end());
  return us[2];
}

__global__ void copy_kernel(uint4* to, const uint4* from, int64_t count) {
  const int64_t first = blockIdx.x * int64_t{1024} + threadIdx.x;
  uint4 piece[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if (first + j * 256 < count) piece[j] = from[first + j * 256];
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if (first + j * 256 < count) to[first + j * 256] = piece[j];
  }
}

// GB/s read plus written by a large copy: the faster of the driver's copy and the kernel above.
inline double measure_copy() {
  const int64_t bytes = int64_t{1} << 30;
  const DeviceArray<char> from(bytes), to(bytes);
  SLX_CUDA(cudaMemset(from.data(), 1, static_cast<size_t>(bytes)));
  const double us = time_launches(2, 1, 2e4, [&](int, cudaStream_t stream) {
    copy_kernel<<<static_cast<unsigned>(bytes / 16384), 256, 0, stream>>>(
        reinterpret_cast<uint4*>(to.data()), reinterpret_cast<const uint4*>(from.data()),
        bytes / 16);
  });
  cudaEvent_t begin, end;
  SLX_CUDA(cudaEventCreate(&begin));
  SLX_CUDA(cudaEventCreate(&end));
  double best = us;
  for (int i = 0; i < 6; ++i) {
    SLX_CUDA(cudaEventRecord(begin));
    SLX_CUDA(cudaMemcpyAsync(to.data(), from.data(), static_cast<size_t>(bytes),
                             cudaMemcpyDeviceToDevice, nullptr));
    SLX_CUDA(cudaEventRecord(end));
    SLX_CUDA(cudaEventSynchronize(end));
    float ms = 0;
    SLX_CUDA(cudaEventElapsedTime(&ms, begin, end));
    best = std::min(best, double(ms) * 1e3);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::printf("copy: kernel %.0f GB/s, best %.0f GB/s\n", 2.0 * double(bytes) / us * 1e-3,
              2.0 * double(bytes) / best * 1e-3);
  return 2.0 * double(bytes) / best * 1e-3;
}

// Prints name, shape, time, bandwidth for the bytes that must move, and its share of a copy's rate.
inline void print_line(const char* name, const char* shape, double us, double bytes, double copy) {
  std::printf("%-24s %-20s %9.2f us %6.0f GB/s %3.0f %% of copy\n", name, shape, us,
              bytes / us * 1e-3, 100 * bytes / us * 1e-3 / copy);
  std::fflush(stdout);
}

}  // namespace slimexx::kernels::testing
