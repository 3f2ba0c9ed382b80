// Memory of a group's ranks that kernels of all of them read and write: each has a window of its
// own on its device, which the others reach over NVLink. Counts that kernels exchange there need no
// wait of the host, so that steps with them can be recorded (tensor/graph.h).
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "slimexx/dist/collective.h"

namespace slimexx::dist {

class PeerMemory {
 public:
  // Windows of `size_bytes` each, the same on all ranks, of which the control is zero. Collective
  // over `group`, which is on device memory and has to outlive it. Null, on all ranks alike, where
  // some rank cannot reach another's device: of several hosts, more than kernels serve, a machine
  // without peer access, or a build without CUDA. The log says why.
  static std::unique_ptr<PeerMemory> make(Collective& group, int64_t size_bytes);
  // What that takes of each device. Other processes map whole allocations, which the driver makes
  // in such units.
  static constexpr int64_t kUnitBytes = int64_t{2} << 20;
  static constexpr int64_t memory_bytes(int64_t size_bytes) {
    return (size_bytes + kUnitBytes - 1) / kUnitBytes * kUnitBytes;
  }
  // Nothing that works on windows may be queued; the others' windows may be gone already.
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }
  int64_t size_bytes() const { return size_bytes_; }
  // By rank, as this rank's device addresses them.
  std::span<char* const> windows() const { return windows_; }
  // Not 0 once cancel() was called; kernels read it.
  const int* cancelled() const { return reinterpret_cast<const int*>(cancelled_.data()); }
  // Ends the waits of this rank's kernels, now and from now on: after a failure, before anybody
  // waits for the device. Any thread.
  void cancel() noexcept;
  // Whether kernels wait for one another. If not, ranks are threads that share a device and its
  // streams; then meet() on the host stands for these waits.
  bool kernels_wait() const { return kernels_wait_; }
  void meet() const;

 private:
  explicit PeerMemory(Collective& group) : group_(group) {}
  bool open_windows(std::span<const char> records);

  Collective& group_;
  int64_t size_bytes_ = 0;
  bool kernels_wait_ = true;
  tensor::Buffer window_;
  tensor::StagingBuffer cancelled_;
  std::vector<char*> windows_;
  std::vector<void*> opened_;  // of other processes
};

}  // namespace slimexx::dist
