// A group of ranks and its collective operations on tensors. Three backends: threads of this
// process, on host memory or on one device that they share, MPI on host memory, and NCCL on device
// memory. The same calls give the same bits on all, but for SumOrder::kAny.
//
// All ranks of the group call the same operations in the same order, with the same shapes, types
// and ranges; each rank from one thread at a time (over MPI: the main thread). Operations are
// queued on the stream; on the CPU they are done on return. On a planning stream they check their
// arguments, take and give back their scratch, and send nothing: ranks may plan on their own.
// Tensors are contiguous and lie on device(). "Rows" are those of dimension 0: of a tensor of one
// dimension its elements.
//
// While a group has peer memory (peer_memory.h), sums in rank order and gathers of tensors in its
// region are kernels that reach the other ranks' memory, where they are queued on the compute
// stream. Either all ranks' tensors of a call lie in their regions or none does.
//
// A group of one rank sends nothing and works on any device. A failed call throws Error(kRun) that
// names the call and the rank. A call that breaks these rules is a fault of ours (SLX_CHECK).
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

class Backend;  // of what moves bytes: threads, MPI, NCCL
class PeerMemory;
enum class Combine : uint8_t;  // sum or maximum

// kRank adds the ranks' terms from the first rank to the last (numerics contract, N6): a bf16 sum
// adds in f32 and rounds once. kAny lets NCCL add in its own order, which depends on sizes and
// ranks alone, never on timing: for gradients, f32 only. On host memory both are rank order.
enum class SumOrder : uint8_t { kRank, kAny };

class Collective {
 public:
  Collective();  // a group of one rank
  // `id`: GroupCall's group. kAllRanks: of the whole job; groups that are split off have their own.
  explicit Collective(std::unique_ptr<Backend> backend, uint64_t id = 0);
  static constexpr uint64_t kAllRanks = 1;
  // Over NCCL: destroyed by a passing exception, it cancels what is queued, so that nobody waits
  // for a rank that failed.
  ~Collective();
  Collective(Collective&&) noexcept;
  Collective& operator=(Collective&&) noexcept;

  int rank() const { return rank_; }
  int size() const { return size_; }
  tensor::Device device() const { return device_; }  // of the tensors; means nothing in size 1
  // For people: what the group is, "tp". Calls are told under it (activity.h).
  void set_name(std::string_view name) { name_ = ShortName(name); }
  // A wait for all ranks to come that sends nothing, until the end of the scope: its end waits for
  // nobody. Collective, so that it is known who has not come.
  CallScope await_all(const ShortName& name) { return {name, name_, size_, 0, next_call()}; }
  // Whether operations go on beside the caller, so that it pays to start one early.
  bool is_queued() const;

  // Returns when all ranks have called it, and what they queued on their compute streams is done.
  void barrier();
  // The root's `data` on every rank.
  void broadcast(tensor::Stream stream, tensor::Tensor data, int root);
  // result [size * n, ...] gets every rank's share [n, ...], by rank.
  void all_gather(tensor::Stream stream, tensor::Tensor result, tensor::Tensor share);
  // In place: each rank contributes the rows ranges[rank] of `data`; afterwards all ranks have all
  // ranges. Ranges are of rows and may be unequal or empty. Of several buckets at once, [bucket *
  // size + rank]: NCCL is faster with them together than one by one.
  void all_gather_ranges(tensor::Stream stream, tensor::Tensor data, std::span<const Range> ranges);
  // The same of one bucket, while this rank's rows are `share`.
  void gather_shares(tensor::Stream stream, tensor::Tensor data, tensor::Tensor share,
                     std::span<const Range> ranges);
  // In place: afterwards the rows ranges[rank] of `data` hold the sum over ranks, and the rest is
  // as it was. One disjoint range of rows a rank, which may be unequal or empty. F32, BF16, F64.
  // kRank takes (size - 1) times this rank's range from `scratch`.
  void reduce_scatter_sum(tensor::Stream stream, tensor::Arena& scratch, tensor::Tensor data,
                          std::span<const Range> ranges, SumOrder order);
  // The same in rank order, but the sum is `result`, of this rank's rows; of `data` they may
  // change.
  void sum_to_shares(tensor::Stream stream, tensor::Arena& scratch, tensor::Tensor result,
                     tensor::Tensor data, std::span<const Range> ranges);
  // result = the sum in rank order of all ranks' `data`, on every rank. For few rows: each rank
  // reads all terms. Of `data` the content may change.
  void sum_to_all(tensor::Stream stream, tensor::Arena& scratch, tensor::Tensor result,
                  tensor::Tensor data);
  // In place: the element-wise sum on every rank. Types and scratch as of reduce_scatter_sum over
  // equal ranges.
  void all_reduce_sum(tensor::Stream stream, tensor::Arena& scratch, tensor::Tensor data,
                      SumOrder order);
  // In place: the element-wise maximum on every rank. No NaN. F32, F64. Scratch as above.
  void all_reduce_max(tensor::Stream stream, tensor::Arena& scratch, tensor::Tensor data);
  // Sends `source` [sum of send_rows, ...], whose rows for rank 0 come first, and fills `result`
  // [sum of receive_rows, ...] by sending rank. Counts are by rank: the rank r's receive_rows[s] is
  // the rank s's send_rows[r].
  void all_to_all(tensor::Stream stream, tensor::Tensor result, tensor::Tensor source,
                  std::span<const int64_t> send_rows, std::span<const int64_t> receive_rows);
  // To and from another rank of the group; the two ranks call one each, nobody else does. On the
  // CPU a send returns when its bytes may change, which may be when the other rank receives.
  void send(tensor::Stream stream, tensor::Tensor data, int to);
  void receive(tensor::Stream stream, tensor::Tensor data, int from);

  // The ranks that give the same color (at least 0) are a group, ordered by key, then by rank here.
  // Must go before this group. Collective over this group.
  std::unique_ptr<Collective> split(int color, int key);
  // The same ranks on the memory of `device`, where this group on host memory moves that too: ranks
  // that are threads and all name the same device. Null: it does not. Must go before this group.
  // Collective.
  std::unique_ptr<Collective> on_device(tensor::Device device);
  // A counter that starts at 0. Must go before this group; its end waits for nobody, so that the
  // failure of one rank can be told. On host memory only. Collective.
  std::unique_ptr<SharedCounter> make_counter();

 private:
  friend class PeerMemory;  // which enters itself, and leaves

  void check_tensor(tensor::Stream stream, const tensor::Tensor& data) const;
  // The rows ranges[rank] of `data`.
  tensor::Tensor own_rows(const tensor::Tensor& data, std::span<const Range> ranges) const;
  // Whose region has `data`, if kernels of the stream may reach it; else null.
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
  int64_t num_calls_ = 0, num_parts_ = 0;  // parts: groups that were made of this one
  std::vector<const PeerMemory*> peer_memories_;
};

}  // namespace slimexx::dist
