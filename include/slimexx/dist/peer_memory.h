// Memory that kernels of all ranks of a group read and write: each rank exposes a region of its
// device's memory, and the others access it over NVLink. Kernels can exchange counts there without
// a wait on the host, so steps that do so can be captured into graphs (tensor/graph.h). While the
// object exists, its group's sums and gathers use it automatically (collective.h).
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
  // `region` [bytes] U8: the memory of this rank's tensors that others may access. It must be the
  // start of a Buffer that is not replaced during this object's life. Collective over `group`,
  // which is on device memory and must outlive this object. Null, on all ranks, if some rank cannot
  // access another's device (several hosts, no peer access; this is logged). Also null for a group
  // of one, for more ranks than the kernels support, when planning, and in a build without CUDA.
  static std::unique_ptr<PeerMemory> make(Collective& group, const tensor::Tensor& region);
  // Device memory that a PeerMemory allocates in addition to the region.
  static constexpr int64_t kControlBytes = kernels::kPeerControlBytes;
  // No work on the regions may be queued. Other ranks may already have destroyed their objects.
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }
  bool holds(const tensor::Tensor& own) const;
  // Offset in bytes of a tensor from the start of this rank's region, which must contain the
  // tensor.
  int64_t place_of(const tensor::Tensor& own) const;
  // Indexed by rank; addresses valid on this rank's device.
  std::span<char* const> controls() const { return controls_; }
  std::span<char* const> regions() const { return regions_; }
  // Nonzero after cancel(); kernels read it.
  const int* cancelled() const { return reinterpret_cast<const int*>(cancelled_.data()); }
  // Ends present and future waits of this rank's kernels. Call it after a failure, before any
  // thread waits for the device. Any thread.
  void cancel() noexcept;
  // Whether kernels wait for one another. If false, the ranks are threads that share a device and
  // its streams, and meet() on the host replaces these waits.
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
  std::vector<void*> opened_;  // IPC mappings of other processes' memory
};

// Peer memory of one region for each of the groups tp, cp, ep and etp whose ranks can access each
// other's memory.
using PeerMemories = std::vector<std::unique_ptr<PeerMemory>>;
// Also sets groups.ep_memory. Returns an empty list on the CPU. Collective over each of the groups.
PeerMemories make_peer_memories(Groups& groups, const tensor::Tensor& region);
// Upper bound on the device memory that peer memories take in addition to the region.
int64_t plan_peer_bytes(tensor::Device device, const Groups& groups);
void cancel(const PeerMemories& memories) noexcept;

}  // namespace slimexx::dist
