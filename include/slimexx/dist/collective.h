// A group of ranks and its collective operations on tensors. Three backends: threads of this
// process (on host memory or on one device that they share), MPI on host memory, and NCCL on device
// memory. The same calls give bitwise equal results on all backends, except with SumOrder::kAny.
//
// All ranks of the group call the same operations in the same order, with the same shapes, types
// and ranges; each rank uses one thread at a time (over MPI: the main thread). Operations are
// queued on the stream; on the CPU they are complete on return. On a planning stream they check
// their arguments, allocate and free their scratch, and send nothing, so a rank may plan alone.
// Tensors are contiguous and lie on device(). "Rows" are indices of dimension 0.
//
// If a group has peer memory (peer_memory.h), operations on the compute stream use kernels that
// access the other ranks' memory: for sums in rank order, and for gathers, if the tensors lie in
// the ranks' regions. In one call either the tensors of all ranks lie in their regions, or none
// does.
//
// A group of one rank sends nothing and works on any device. A failed call throws Error(kRun) with
// the name of the call and the rank. A call that breaks these rules is a programming error
// (SLX_CHECK).
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "slimexx/base/activity.h"
#include "slimexx/dist/ranges.h"
#include "slimexx/dist/shared_counter.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::dist {

class Backend;  // moves the bytes: threads, MPI, NCCL
class PeerMemory;
enum class Combine : uint8_t;  // sum or maximum

// kRank adds the ranks' terms from the first rank to the last (numerics contract, N6): a bf16 sum
// accumulates in f32 and rounds once. kAny lets NCCL choose the order, which depends on sizes and
// ranks only, never on timing: for gradients, f32 only. On host memory both are rank order.
enum class SumOrder : uint8_t { kRank, kAny };

class Collective {
 public:
  Collective();  // a group of one rank
  // `id`: GroupCall's group. kAllRanks: the group of the whole job; split() gives each new group
  // its own id.
  explicit Collective(std::unique_ptr<Backend> backend, uint64_t id = 0);
  static constexpr uint64_t kAllRanks = 1;
  // Over NCCL: if an exception unwinds the stack, the destructor aborts the queued operations, so
  // that no rank waits for a failed rank.
  ~Collective();
  Collective(Collective&&) noexcept;
  Collective& operator=(Collective&&) noexcept;

  int rank() const { return rank_; }
  int size() const { return size_; }
  tensor::Device device() const { return device_; }  // of the tensors; unused if size() is 1
  // A name for messages, such as "tp". Calls are reported under it (activity.h).
  void set_name(std::string_view name) { name_ = ShortName(name); }
  // Records that this rank waits for the others, until the end of the scope; sends nothing and does
  // not block. Collective, so that the watch can tell which ranks have not arrived.
  CallScope await_all(const ShortName& name) { return {name, name_, size_, 0, next_call()}; }
  // Whether operations run asynchronously, so that an early start saves time.
  bool is_queued() const;

  // Returns when all ranks have called barrier() and the work that they queued on their compute
  // streams is complete.
  void barrier();
  // Copies the root's `data` to every rank.
  void broadcast(tensor::Stream stream, tensor::Tensor data, int root);
  // result [size * n, ...] gets every rank's share [n, ...], by rank.
  void all_gather(tensor::Stream stream, tensor::Tensor result, tensor::Tensor share);
  // In place: each rank contributes the rows ranges[rank] of `data`; afterwards all ranks have all
  // ranges. Ranges may be unequal or empty. For several buckets at once, index ranges as [bucket *
  // size + rank]: one call is faster on NCCL than one call per bucket.
  void all_gather_ranges(tensor::Stream stream, tensor::Tensor data, std::span<const Range> ranges);
  // Like all_gather_ranges for one bucket, but this rank contributes `share`.
  void gather_shares(tensor::Stream stream, tensor::Tensor data, tensor::Tensor share,
                     std::span<const Range> ranges);
  // In place: afterwards the rows ranges[rank] of `data` hold the sum over ranks; other rows are
  // unchanged. One range per rank; ranges are disjoint and may be unequal or empty. F32, BF16, F64.
  // kRank takes (size - 1) times this rank's range from `scratch`.
  void reduce_scatter_sum(tensor::Stream stream, tensor::Arena& scratch, tensor::Tensor data,
                          std::span<const Range> ranges, SumOrder order);
  // Like reduce_scatter_sum in rank order, but this rank's sum is written to `result`; this rank's
  // rows of `data` may be overwritten.
  void sum_to_shares(tensor::Stream stream, tensor::Arena& scratch, tensor::Tensor result,
                     tensor::Tensor data, std::span<const Range> ranges);
  // result = the sum in rank order of all ranks' `data`, on every rank. For few rows: each rank
  // reads all terms. May overwrite `data`.
  void sum_to_all(tensor::Stream stream, tensor::Arena& scratch, tensor::Tensor result,
                  tensor::Tensor data);
  // In place: the element-wise sum on every rank. Types and scratch as for reduce_scatter_sum with
  // equal ranges.
  void all_reduce_sum(tensor::Stream stream, tensor::Arena& scratch, tensor::Tensor data,
                      SumOrder order);
  // In place: the element-wise maximum on every rank. No NaN. F32, F64. Scratch as for
  // all_reduce_sum.
  void all_reduce_max(tensor::Stream stream, tensor::Arena& scratch, tensor::Tensor data);
  // Sends `source` [sum of send_rows, ...], ordered by destination rank, and fills `result` [sum of
  // receive_rows, ...], ordered by source rank. Counts are indexed by rank: receive_rows[s] on rank
  // r equals send_rows[r] on rank s.
  void all_to_all(tensor::Stream stream, tensor::Tensor result, tensor::Tensor source,
                  std::span<const int64_t> send_rows, std::span<const int64_t> receive_rows);
  // Point to point: one rank sends and the other receives; no other rank calls. On the CPU, send
  // returns when `data` may be changed, possibly only after the other rank has received it.
  void send(tensor::Stream stream, tensor::Tensor data, int to);
  void receive(tensor::Stream stream, tensor::Tensor data, int from);

  // Ranks with the same color (at least 0) form a new group, ordered by key, then by rank in this
  // group. Destroy the new group before this one. Collective over this group.
  std::unique_ptr<Collective> split(int color, int key);
  // A group of the same ranks on the memory of `device`, if this backend supports it: ranks that
  // are threads and all name the same device. Otherwise null. Destroy the new group before this
  // one. Collective.
  std::unique_ptr<Collective> on_device(tensor::Device device);
  // A counter that starts at 0. Destroy it before this group; the destructor does not wait for
  // other ranks, so that a failed rank can still be reported. On host memory only. Collective.
  std::unique_ptr<SharedCounter> make_counter();

 private:
  friend class PeerMemory;  // adds and removes itself in peer_memories_

  void check_tensor(tensor::Stream stream, const tensor::Tensor& data) const;
  // The rows ranges[rank] of `data`.
  tensor::Tensor own_rows(const tensor::Tensor& data, std::span<const Range> ranges) const;
  // The peer memory whose region holds `data`, if kernels on this stream may access it; otherwise
  // null.
  const PeerMemory* find_peers(tensor::Stream stream, const tensor::Tensor& data) const;
  void gather(tensor::Stream stream, const tensor::Tensor& data, const tensor::Tensor& share,
              std::span<const Range> ranges);
  void reduce_scatter(tensor::Stream stream, tensor::Arena& scratch, const tensor::Tensor& data,
                      std::span<const Range> ranges, Combine combine);
  void all_reduce(tensor::Stream stream, tensor::Arena& scratch, const tensor::Tensor& data,
                  Combine combine, bool any_order);
  GroupCall next_call() { return {.group = id_, .rank = rank_, .number = ++num_calls_}; }

  std::unique_ptr<Backend> backend_;  // null: one rank
  int rank_ = 0, size_ = 1;
  tensor::Device device_;
  ShortName name_;
  uint64_t id_ = 0;
  int64_t num_calls_ = 0, num_parts_ = 0;  // parts: groups made from this one
  std::vector<const PeerMemory*> peer_memories_;
};

}  // namespace slimexx::dist
