// Timing of collective operations, one device per rank.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "slimexx/dist/host.h"
#include "slimexx/dist/world.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::dist {

// Text to append to a line of results: our rate relative to NCCL's. `nccl`: NCCL's time for the
// same bytes, in the unit of `time`; 0: the text is empty.
inline std::string share_of_nccl(double time, double nccl) {
  return nccl > 0 ? fmt::format("  {:.2f} of NCCL's rate", nccl / time) : "";
}

struct Bench {
  World& world;
  tensor::Device device;

  void wait() const {
    tensor::synchronize(tensor::side_stream(device));
    tensor::synchronize(tensor::compute_stream(device));
  }

  // Median over several runs of the slowest rank's time until the compute stream, or both streams,
  // are idle.
  double time_ms(const std::function<void()>& run, bool both_streams = true) const {
    std::vector<double> times;
    for (int i = 0; i < 7; ++i) {
      wait();
      world.ranks().barrier();
      const auto start = std::chrono::steady_clock::now();
      run();
      tensor::synchronize(tensor::compute_stream(device));
      if (both_streams) wait();
      const std::chrono::duration<double, std::milli> took =
          std::chrono::steady_clock::now() - start;
      double slowest[1] = {took.count()};
      all_reduce_max(world.ranks(), slowest);
      if (i >= 2) times.push_back(slowest[0]);
    }
    wait();
    std::ranges::sort(times);
    return times[times.size() / 2];
  }

  double gigabytes_a_second(double bytes, double ms) const {
    return bytes * (world.size() - 1) / world.size() / ms * 1e-6;
  }

  // Returns the time in ms. `nccl_ms`: as for share_of_nccl.
  double report(const std::string& what, double bytes, const std::function<void()>& run,
                double nccl_ms = 0) const {
    const double ms = time_ms(run);
    if (world.rank() == 0)
      fmt::print("{:<60} {:8.3f} ms {:7.1f} GB/s{}\n", what, ms, gigabytes_a_second(bytes, ms),
                 share_of_nccl(ms, nccl_ms));
    return ms;
  }
};

}  // namespace slimexx::dist
