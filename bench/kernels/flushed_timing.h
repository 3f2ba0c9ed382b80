// Times launches with a cold L2.
#pragma once
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/kernels/device_array.h"

namespace slimexx::kernels::testing {

// Median time of launches that the host queues ahead, each after a pass over more memory than L2
// holds. Triton's do_bench, which times the peers, does the same.
template <class Work>
double median_us(int repeats, const Work& work) {
  static const DeviceArray<uint8_t> flushed(int64_t{256} << 20);
  std::vector<cudaEvent_t> events(2 * static_cast<size_t>(repeats + 3));
  for (cudaEvent_t& event : events) SLX_CUDA(cudaEventCreate(&event));
  for (size_t i = 0; i < events.size(); i += 2) {
    SLX_CUDA(cudaMemsetAsync(flushed.data(), 0, static_cast<size_t>(flushed.count())));
    SLX_CUDA(cudaEventRecord(events[i]));
    work();
    SLX_CUDA(cudaEventRecord(events[i + 1]));
  }
  SLX_CUDA(cudaDeviceSynchronize());
  std::vector<float> times;
  for (size_t i = 6; i < events.size(); i += 2) {  // skip three warm-up launches
    float ms = 0;
    SLX_CUDA(cudaEventElapsedTime(&ms, events[i], events[i + 1]));
    times.push_back(ms * 1e3f);
  }
  for (const cudaEvent_t event : events) SLX_CUDA(cudaEventDestroy(event));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace slimexx::kernels::testing
