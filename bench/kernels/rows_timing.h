// Timing of kernels bound by memory: graph replays over operands that together exceed the L2, and
// the device's copy bandwidth as the ceiling.
#pragma once
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <vector>

#include "tests/kernels/device_array.h"

namespace slimexx::kernels::testing {

using Launch = std::function<void(int copy, cudaStream_t stream)>;

// Microseconds of one launch: `launches` of them captured once (copy = 0, 1, .., copies - 1, 0,
// ..), replayed for about target_us; the median of five.
inline double time_launches(int launches, int copies, double target_us, const Launch& launch) {
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t replay;
  cudaEvent_t begin, end;
  SLX_CUDA(cudaStreamCreate(&stream));
  SLX_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < launches; ++i) launch(i % copies, stream);
  SLX_CUDA(cudaStreamEndCapture(stream, &graph));
  SLX_CUDA(cudaGraphInstantiate(&replay, graph, 0));
  SLX_CUDA(cudaEventCreate(&begin));
  SLX_CUDA(cudaEventCreate(&end));
  const auto time = [&](int repeats) {
    SLX_CUDA(cudaEventRecord(begin, stream));
    for (int i = 0; i < repeats; ++i) SLX_CUDA(cudaGraphLaunch(replay, stream));
    SLX_CUDA(cudaEventRecord(end, stream));
    SLX_CUDA(cudaEventSynchronize(end));
    float ms = 0;
    SLX_CUDA(cudaEventElapsedTime(&ms, begin, end));
    return static_cast<double>(ms) * 1e3 / (repeats * launches);
  };
  const int repeats = std::clamp(static_cast<int>(target_us / (time(2) * launches)), 1, 400);
  std::vector<double> us(5);
  for (double& v : us) v = time(repeats);
  std::sort(us.begin(), us.end());
  cudaGraphExecDestroy(replay);
  cudaGraphDestroy(graph);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaStreamDestroy(stream);
  return us[2];
}

// GB/s read plus written by a large copy.
inline double measure_copy() {
  const int64_t bytes = int64_t{1} << 30;
  const DeviceArray<char> from(bytes), to(bytes);
  SLX_CUDA(cudaMemset(from.data(), 1, static_cast<size_t>(bytes)));
  const double us = time_launches(2, 1, 2e4, [&](int, cudaStream_t stream) {
    SLX_CUDA(cudaMemcpyAsync(to.data(), from.data(), static_cast<size_t>(bytes),
                             cudaMemcpyDeviceToDevice, stream));
  });
  return 2.0 * double(bytes) / us * 1e-3;
}

// One line: name, shape, time, bandwidth over the bytes that must move, share of a copy's.
inline void print_line(const char* name, const char* shape, double us, double bytes, double copy) {
  std::printf("%-24s %-20s %9.2f us %6.0f GB/s %3.0f %% of copy\n", name, shape, us,
              bytes / us * 1e-3, 100 * bytes / us * 1e-3 / copy);
  std::fflush(stdout);
}

}  // namespace slimexx::kernels::testing
