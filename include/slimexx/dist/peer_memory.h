// Memory of a group's ranks that kernels of all of them read and write: each shows a region of its
// device's memory, which the others reach over NVLink. Counts that kernels exchange there need no
// wait of the host, so that steps with them can be recorded (tensor/graph.h). While there is such
// memory, its group's sums and gathers go that way by themselves (collective.h).
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "slimexx/dist/collective.h"
#include "slimexx/kernels/limits.h"

namespace slimexx::dist {

struct Groups;

class PeerMemory {
 public:
  // `region` [bytes] U8 is where this rank's tensors are that others shall reach: the first bytes
  // of a Buffer, which is not changed for another one while this object is there. Collective over
  // `group`, which is on device memory and has to outlive it. Null, on all ranks alike, where some
  // rank cannot reach another's device (several hosts, no peer access), which the log says; also of
  // a group of one, of more ranks than kernels serve, and in a build without CUDA.
  static std::unique_ptr<PeerMemory> make(Collective& group, const tensor::Tensor& region);
  // What it takes of the device besides.
  static constexpr int64_t kControlBytes = kernels::kPeerControlBytes;
  // Nothing that works on the regions may be queued; the others' may be gone already.
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }
  bool holds(const tensor::Tensor& own) const;
  // Of a tensor that lies in this rank's region: bytes from its start.
  int64_t place_of(const tensor::Tensor& own) const;
  // By rank, as this rank's device addresses them.
  std::span<char* const> controls() const { return controls_; }
  std::span<char* const> regions() const { return regions_; }
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
  bool open(std::span<const char> records);

  Collective& group_;
  tensor::Tensor region_;
  bool kernels_wait_ = true;
  tensor::Buffer control_;
  tensor::StagingBuffer cancelled_;
  std::vector<char*> controls_, regions_;
  std::vector<void*> opened_;  // of other processes
};

// That of a rank's groups tp, cp, ep and etp whose ranks reach each other, for one region.
using PeerMemories = std::vector<std::unique_ptr<PeerMemory>>;
// Enters ep's into `groups`. Nothing on the CPU. Collective over each of the groups.
PeerMemories make_peer_memories(Groups& groups, const tensor::Tensor& region);
// What these take of a device besides the region, at most.
int64_t plan_peer_bytes(tensor::Device device, const Groups& groups);
void cancel(const PeerMemories& memories) noexcept;

}  // namespace slimexx::dist
