#include "doctor/measures.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <vector>

#include "slimexx/base/file.h"
#include "slimexx/base/thread_pool.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::doctor {
namespace {

using tensor::DType;
using tensor::Tensor;

constexpr int64_t kHostBytes = int64_t{128} << 20;
constexpr int64_t kGpuBytes = int64_t{512} << 20;
constexpr int64_t kFileBytes = int64_t{64} << 20;
constexpr int64_t kHostMessageBytes = int64_t{8} << 20, kGpuMessageBytes = int64_t{64} << 20;
constexpr int64_t kScratchBytes = 4096;
constexpr int kTries = 4, kSmallTries = 50;

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The shortest time of `tries`; an extra first try warms up and does not count.
double best_seconds(int tries, const std::function<void()>& work) {
  work();
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < tries; ++i) best = std::min(best, seconds_of(work));
  return best;
}

double rate(int64_t bytes, double seconds) {
  return seconds > 0 ? static_cast<double>(bytes) / seconds : 0;
}

}  // namespace

double measure_host_copy() {
  std::vector<char> from(kHostBytes, 1), to(kHostBytes);
  const double s = best_seconds(kTries, [&] {
    parallel_for(kHostBytes, int64_t{1} << 20, [&](int64_t begin, int64_t end) {
      std::memcpy(to.data() + begin, from.data() + begin, static_cast<size_t>(end - begin));
    });
  });
  return rate(2 * kHostBytes, s);
}

void measure_gpu(tensor::Device device, Rates& rates) {
  const tensor::Buffer buffer(device, 2 * kGpuBytes, "doctor");
  const Tensor from = buffer.view(DType::kU8, {kGpuBytes});
  const Tensor to = buffer.view(DType::kU8, {kGpuBytes}, kGpuBytes);
  const tensor::StagingBuffer host(device, kHostBytes, "doctor");
  const Tensor staged = buffer.view(DType::kU8, {kHostBytes});
  const tensor::Stream stream = tensor::compute_stream(device);
  const auto timed = [&](const std::function<void()>& queue) {
    return best_seconds(kTries, [&] {
      queue();
      tensor::synchronize(stream);
    });
  };
  rates.gpu_copy = rate(2 * kGpuBytes, timed([&] { tensor::copy_bytes(stream, to, from); }));
  rates.to_gpu = rate(kHostBytes, timed([&] { tensor::upload(stream, staged, host.data()); }));
  rates.from_gpu =
      rate(kHostBytes, timed([&] { tensor::download_later(stream, host.data(), staged); }));
}

double measure_write(const std::string& folder, int rank) {
  const std::string path = join_path(folder, "doctor_" + std::to_string(rank));
  const std::vector<char> bytes(kFileBytes, 1);
  const double s = seconds_of([&] {
    OutputFile file(path);
    file.write(bytes.data(), bytes.size());
    file.commit();
  });
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  return rate(kFileBytes, s);
}

LinkRates measure_links(dist::Collective& ranks) {
  LinkRates rates;
  if (ranks.size() == 1) return rates;
  const tensor::Device device = ranks.device();
  const tensor::Stream stream = tensor::compute_stream(device);
  const int64_t bytes = device.is_cpu() ? kHostMessageBytes : kGpuMessageBytes;
  const int64_t share = bytes / ranks.size() / 64 * 64;
  const tensor::Buffer buffer(device, bytes, "doctor");
  const Tensor message = buffer.view(DType::kU8, {bytes});

  // Measure one link at a time, so that other traffic does not mask a slow one.
  for (int from = 0; from < ranks.size(); ++from) {
    const int to = (from + 1) % ranks.size();
    ranks.barrier();
    const double s = best_seconds(kTries, [&] {
      if (ranks.rank() == from) ranks.send(stream, message, to);
      if (ranks.rank() == to) ranks.receive(stream, message, from);
      tensor::synchronize(stream);
    });
    if (ranks.rank() == from) rates.to_next = rate(bytes, s);
  }
  ranks.barrier();
  const Tensor all = buffer.view(DType::kU8, {share * ranks.size()});
  const tensor::Buffer own_buffer(device, share, "doctor");
  const Tensor own = own_buffer.view(DType::kU8, {share});
  rates.gather = rate(share * (ranks.size() - 1), best_seconds(kTries, [&] {
                        ranks.all_gather(stream, all, own);
                        tensor::synchronize(stream);
                      }));
  const Tensor number = buffer.view(DType::kF32, {1});
  tensor::Arena scratch(device, kScratchBytes, "doctor");
  rates.smallest_s = best_seconds(kSmallTries, [&] {
    if (device.is_cpu()) return ranks.barrier();
    ranks.all_reduce_max(stream, scratch, number);
    tensor::synchronize(stream);
  });
  ranks.barrier();
  return rates;
}

}  // namespace slimexx::doctor
