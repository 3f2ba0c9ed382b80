// What a Collective needs of the layer that moves bytes. Arguments were checked, and no call but
// plan_sent is on a planning stream; there are at least two ranks.
#pragma once
#include <cstdint>
#include <memory>
#include <span>

#include "slimexx/dist/collective.h"

namespace slimexx::dist {

enum class Combine : uint8_t { kSum, kMax };

// Bytes for, or from, another rank.
struct Message {
  int peer = 0;
  char* data = nullptr;
  int64_t size_bytes = 0;
};

// One operand [n] per rank: this rank's, which becomes the result, and the others', concatenated in
// rank order.
struct Terms {
  char* own = nullptr;
  const char* others = nullptr;
  int rank = 0, size = 1;
  int64_t n = 0;
  tensor::DType dtype = tensor::DType::kF32;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual tensor::Device device() const = 0;
  virtual void barrier() = 0;
  virtual void broadcast(tensor::Stream stream, char* data, int64_t size_bytes, int root) = 0;
  // Ranges of bytes, as Collective::all_gather_ranges.
  virtual void all_gather_ranges(tensor::Stream stream, char* data,
                                 std::span<const Range> ranges) = 0;
  // Sends and receives together, at most one each way with a peer. A message may be empty.
  virtual void exchange(tensor::Stream stream, std::span<const Message> sends,
                        std::span<const Message> receives) = 0;
  // Term by term, from the first rank's to the last's. A sum of BF16 is in f32 and rounded once.
  virtual void combine(tensor::Stream stream, const Terms& terms, Combine combine);
  // Do operations return before they are done?
  virtual bool is_queued() const { return false; }
  // Has the backend reductions of its own? They serve SumOrder::kAny and the maximum, in place, of
  // one dimension; ranges are of elements.
  virtual bool reduces() const { return false; }
  virtual void reduce_scatter_sum(tensor::Stream, tensor::Tensor, std::span<const Range>) {}
  virtual void all_reduce(tensor::Stream, tensor::Tensor, Combine) {}
  // A call on a planning stream would send so many bytes from this rank to others: of operations of
  // all ranks what a ring sends, of rows by rank those of an even spread.
  virtual void plan_sent(int64_t) {}
  virtual std::unique_ptr<Backend> split(int color, int key) = 0;  // null: a group of one
  virtual std::unique_ptr<Backend> on_device(tensor::Device) { return nullptr; }  // as Collective's
  virtual std::unique_ptr<SharedCounter> make_counter() = 0;
  int64_t num_path_decisions = 0;  // counted by path_check.h
};

// The sum of `terms` on the stream's device, in rank order, queued. Only where the build has CUDA.
void sum_on_device(tensor::Stream stream, const Terms& terms);

}  // namespace slimexx::dist
